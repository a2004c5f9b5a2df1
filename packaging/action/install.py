"""Installs gradus: downloads the archive of a release, or takes one from a folder, and checks its SHA-256 before it is
unpacked."""
import hashlib
import os
import pathlib
import platform
import re
import tarfile
import tempfile
import urllib.error
import urllib.request

from runner import BadInput, print_command, read_input, run_step, write_output

TARGETS = {("Linux", "x86_64"): "x86_64-unknown-linux-gnu", ("Linux", "aarch64"): "aarch64-unknown-linux-gnu", ("Darwin", "arm64"): "aarch64-apple-darwin", ("Darwin", "x86_64"): "x86_64-apple-darwin"}
DOWNLOAD_TIMEOUT_S = 120
REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")


def action_version():
    """The version of this checkout, so that an action pinned to a commit installs the release of that commit."""
    manifest = pathlib.Path(__file__).resolve().parents[2] / "Cargo.toml"
    found = re.search(r'^version = "([^"]+)"', manifest.read_text(), re.MULTILINE)
    return found.group(1)


def check_digest(content, wanted, name):
    got = hashlib.sha256(content).hexdigest()
    if got != wanted.lower():
        raise BadInput(f"{name}: SHA-256 is {got} instead of {wanted}")


def listed_digest(checksums, name):
    for line in checksums.splitlines():
        digest, _, file = line.partition("  ")
        if file == name and re.fullmatch(r"[0-9a-f]{64}", digest):
            return digest
    raise BadInput(f"SHA256SUMS: {name} is not listed")


def fetch(url):
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as answer:
            return answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise BadInput(f"cannot download gradus: {url}: {error}\nhint: is there a release of this version? The input `path` takes a folder or a program") from error


def find_archive(version, target):
    """Name, content and checksums of the archive."""
    name, folder = f"gradus-{version}-{target}.tar.gz", read_input("PATH")
    if folder:
        try:
            return name, (pathlib.Path(folder) / name).read_bytes(), (pathlib.Path(folder) / "SHA256SUMS").read_text()
        except OSError as error:
            raise BadInput(f"path: {error}") from error
    repository = os.environ.get("ACTION_REPOSITORY", "")
    if not REPOSITORY.fullmatch(repository):
        raise BadInput("this action is not used from a repository with releases\nhint: name a folder or a program in the input `path`")
    base = f"{os.environ.get('GITHUB_SERVER_URL', 'https://github.com')}/{repository}/releases/download/v{version}"
    return name, fetch(f"{base}/{name}"), fetch(f"{base}/SHA256SUMS").decode("utf-8", "replace")


def unpack_program(content, destination):
    """Only the program is taken out, whatever paths the archive has."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        with tarfile.open(fileobj=file, mode="r:gz") as archive:
            member = next((m for m in archive if m.isfile() and pathlib.PurePosixPath(m.name).name == "gradus"), None)
            if member is None:
                raise BadInput("the archive has no program gradus")
            destination.write_bytes(archive.extractfile(member).read())


def main():
    named, digest = pathlib.Path(read_input("PATH") or "."), read_input("SHA256")
    folder = pathlib.Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir()) / "gradus-bin"
    folder.mkdir(parents=True, exist_ok=True)
    program, version = folder / "gradus", read_input("VERSION").lstrip("v") or action_version()
    if not re.fullmatch(r"[0-9A-Za-z.+-]+", version):
        raise BadInput(f"version: {version!r} is not a version")
    if read_input("PATH") and named.is_file():
        content = named.read_bytes()
        if digest:
            check_digest(content, digest, named.name)
        program.write_bytes(content)
    else:
        key = (platform.system(), platform.machine())
        if key not in TARGETS:
            raise BadInput(f"no release for {key[0]} on {key[1]}\nhint: name a program in the input `path`")
        name, content, checksums = find_archive(version, TARGETS[key])
        check_digest(content, listed_digest(checksums, name), name)
        if digest:
            check_digest(content, digest, name)
        unpack_program(content, program)
    program.chmod(0o755)
    if os.environ.get("GITHUB_PATH"):
        with open(os.environ["GITHUB_PATH"], "a", encoding="utf-8") as file:
            file.write(f"{folder}\n")
    write_output("program", program)
    write_output("version", version)
    print_command("debug", f"installed {program}")


if __name__ == "__main__":
    run_step(main)
