"""Builds the program that is packed: profile `dist`, all features, an old glibc or none, and no path of this machine inside."""
import glob
import os
import pathlib
import subprocess
import sys
import venv

# Zig links against any glibc and brings musl. Both packages are on PyPI.
TOOLS = ["cargo-zigbuild==0.24.0", "ziglang==0.17.0"]
# The glibc of RHEL 7 and of manylinux2014.
OLDEST_GLIBC = "2.17"


class BuildFailed(Exception):
    pass


def cache_folder():
    return pathlib.Path(os.environ.get("GRADUS_TEST_CACHE") or pathlib.Path.home() / ".cache" / "gradus")


def tool_environment(packages=TOOLS, name="dist-tools-zig"):
    """A virtual environment with these packages, made once; its folder of programs."""
    folder = cache_folder() / name
    made, wanted = folder / "packages.txt", "\n".join(packages)
    if not (made.exists() and made.read_text() == wanted):
        venv.create(folder, with_pip=True, clear=True)
        pip = subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], capture_output=True, text=True)
        if pip.returncode != 0:
            raise BuildFailed(f"cannot install {', '.join(packages)}: {pip.stderr.strip().splitlines()[-1:]}")
        made.write_text(wanted)
    return folder / "bin"


def remapped_paths(root, target_folder, rust_src):
    """Folders of this machine, and what stands for them in the program."""
    home = os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo"
    pairs = [(folder, "/cargo") for folder in sorted(glob.glob(f"{home}/registry/src/*"))]
    pairs += [(str(root), "/gradus"), (str(target_folder), "/target")]
    return pairs + ([(str(rust_src), "/rust")] if rust_src else [])


def has_standard_library(target):
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    return bool(glob.glob(f"{sysroot}/lib/rustlib/{target}/lib/libstd-*"))


def build_program(root, target, rust_src=None, profile="dist"):
    """The path of the built program. `rust_src` is a folder `library` of the same version of Rust; it stands in for a
    standard library that is not installed."""
    target_folder = cache_folder() / "dist-target"
    pairs = remapped_paths(root, target_folder, rust_src)
    flags = [f"--remap-path-prefix={old}={new}" for old, new in pairs]
    is_musl = target.endswith("-musl")
    # One unit, optimised as a whole: a package is built once and downloaded often, and smaller code is no slower.
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target_folder), "CARGO_PROFILE_DIST_LTO": "fat", "CARGO_PROFILE_DIST_CODEGEN_UNITS": "1"}
    environment.pop("RUSTFLAGS", None)
    # C sources name themselves in their assertions.
    c_pairs = [pair for pair in pairs if pair[1] in ("/cargo", "/target")]
    environment["CFLAGS"] = " ".join(f"-ffile-prefix-map={old}={new}" for old, new in c_pairs)
    programs = tool_environment()
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    versioned = target if is_musl else f"{target}.{OLDEST_GLIBC}"
    command = ["cargo", "zigbuild", "--locked", "-p", "gradus", "--bin", "gradus", "--profile", profile, "--target", versioned]
    # On musl the allocator of the system stays: crates/gradus/Cargo.toml.
    command += ["--features", "parquet,s3" if is_musl else "dist"]
    if not has_standard_library(target):
        if rust_src is None:
            raise BuildFailed(f"no standard library for {target}\nhint: rustup target add {target}, or --rust-src FOLDER with the sources of the same version")
        command += ["-Zbuild-std=std,panic_unwind"]
        environment |= {"RUSTC_BOOTSTRAP": "1", "__CARGO_TESTS_ONLY_SRC_ROOT": str(rust_src)}
        if is_musl:
            # The start files that rustup ships are not there; zig brings its own.
            flags += ["-C", "link-self-contained=no"]
    environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    print(f"building {target}", file=sys.stderr, flush=True)
    if subprocess.run(command, cwd=root, env=environment).returncode != 0:
        raise BuildFailed(f"cargo zigbuild failed for {target}")
    return target_folder / target / profile / "gradus"
