"""The npm packages: a main package with a shim, and one package a platform with the program. Nothing is downloaded after
the installation: npm installs the one optional dependency whose os, cpu and libc fit."""
import json
import pathlib

from reproducible import write_tar_gz

# The platforms of the release; the shim names the same ones.
PLATFORMS = ["linux-x64", "linux-x64-musl", "linux-arm64", "linux-arm64-musl", "darwin-x64", "darwin-arm64"]
SCOPE = "@gradus"


def write_main_package(folder, source, version, licence, epoch):
    """The same for every platform: it holds no program and nothing of third parties."""
    described = json.loads((source / "package.json").read_text())
    described["version"] = version
    described["optionalDependencies"] = {f"{SCOPE}/cli-{platform}": version for platform in PLATFORMS}
    entries = {f"package/{name}": ((source / name).read_bytes(), 0o755 if name.startswith("bin/") else 0o644) for name in ("bin/gradus.js", "README.md")}
    return write_package(folder, described, entries, {"LICENSE": licence}, epoch)


def write_platform_package(folder, version, platform, program, licences, epoch):
    described = {
        "name": f"{SCOPE}/cli-{platform.npm_name}", "version": version, "license": "Apache-2.0",
        "description": f"The gradus program for {platform.npm_name}. Install the package gradus instead.",
        "preferUnplugged": True, **platform.npm_fields,
    }
    return write_package(folder, described, {f"package/bin/{platform.program_name}": (program, 0o755)}, licences, epoch)


def write_package(folder, described, entries, licences, epoch):
    entries["package/package.json"] = ((json.dumps(described, indent=2) + "\n").encode(), 0o644)
    entries |= {f"package/{name}": (text.encode(), 0o644) for name, text in licences.items()}
    # As `npm pack` names it.
    path = pathlib.Path(folder) / f"{described['name'].lstrip('@').replace('/', '-')}-{described['version']}.tgz"
    write_tar_gz(path, entries, epoch)
    return path
