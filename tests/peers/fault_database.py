"""A PostgreSQL primary with a synchronous standby, which can be killed, frozen, slowed down and promoted."""
import contextlib
import os
import pathlib
import signal
import subprocess
import time

from postgres_cluster import Cluster, wait_for

# The system keeps what a killed process wrote, so nothing has to reach the disk. Checkpoints are frequent, so that recovery is short.
SETTINGS = ["unix_socket_directories=", "fsync=off", "max_connections=150", "wal_keep_size=64MB", "max_wal_senders=4", "hot_standby=on", "wal_receiver_status_interval=1s", "wal_retrieve_retry_interval=200ms"]
# How long a look at the database may take before it is given up: it may be frozen.
LOOK_S = 5


class DatabaseServer(Cluster):
    """One of the two servers. Its folder is filled from the other one if that exists."""

    def __init__(self, programs, primary=None):
        self.primary = primary
        super().__init__(programs, SETTINGS)

    def create(self):
        if self.primary is None:
            super().create()
        else:
            self.copy(self.primary)

    def copy(self, primary):
        self.run("pg_basebackup", "-D", self.data, "-h", "127.0.0.1", "-p", primary.port, "-U", "gradus", "-R", "-X", "stream", "-c", "fast", "--no-sync")

    def process_ids(self):
        """The postmaster and its children; none if it does not run."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
            return [postmaster, *children(postmaster)]
        return []

    def signal(self, number):
        for process in self.process_ids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self):
        """As the kernel does when memory runs out, but all processes at once."""
        processes = self.process_ids()
        self.signal(signal.SIGKILL)
        wait_for(lambda: not any(is_running(process) for process in processes), "PostgreSQL to be dead", 30)
        # A dead process that nobody waited for still has its number, and PostgreSQL would take it for a running server.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def close(self):
        # A stop would wait for a process that nobody waits for.
        self.kill()
        super().close()

    def look(self, text):
        """The answer to a query as rows of texts; `None` if the server does not answer."""
        command = [self.programs / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "gradus", "-d", "faults", "-X", "-q", "-t", "-A", "-F", "|", "-c", text]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_S, stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C", "HOME": "/"})
        except subprocess.TimeoutExpired:
            return None
        return [line.split("|") for line in done.stdout.splitlines()] if done.returncode == 0 else None

    def receiver(self):
        """The process of a standby that receives and writes what the primary commits."""
        return next((process for process in self.process_ids()[1:] if b"walreceiver" in command_line(process)), None)


def children(parent):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name of a program is in parentheses and may contain spaces.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == parent:
                    found.append(int(entry.name))
    return found


def command_line(process):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/cmdline").read_bytes()
    return b""


def is_running(process):
    with contextlib.suppress(OSError):
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


class DatabasePair:
    """A primary and a standby that confirms every commit. Promotions swap them."""

    def __init__(self, programs):
        self.primary = DatabaseServer(programs)
        self.primary.start()
        self.primary.create_database("faults")
        self.standby = DatabaseServer(programs, self.primary)
        self.servers = [self.primary, self.standby]
        self.attach_standby()

    def attach_standby(self):
        self.standby.start()
        wait_for(self.is_streaming, "the standby to follow")
        self.set_synchronous("*")

    def is_streaming(self):
        return self.primary.look("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")

    def set_synchronous(self, names):
        self.primary.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.primary.sql("SELECT pg_reload_conf()")

    def restart_primary(self):
        """Kills the primary and starts it again."""
        self.primary.kill()
        self.primary.start()
        wait_for(self.is_streaming, "the standby to follow again")

    def promote(self):
        """The primary dies and the standby takes its place. Returns when it accepts writes; the dead one is still to be rebuilt."""
        self.primary.kill()
        self.primary, self.standby = self.standby, self.primary
        self.primary.sql("SELECT pg_promote(true, 60)")
        self.set_synchronous("")

    def rebuild_standby(self):
        subprocess.run(["rm", "-rf", str(self.standby.data)], check=True)
        self.standby.copy(self.primary)
        self.attach_standby()

    def slow_commits(self, seconds, pause_s):
        """Commits wait for the standby, whose receiver stops again and again: a slow disk."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and (receiver := self.standby.receiver()):
            os.kill(receiver, signal.SIGSTOP)
            time.sleep(pause_s)
            os.kill(receiver, signal.SIGCONT)
            time.sleep(pause_s / 10)

    def close(self):
        for server in self.servers:
            server.signal(signal.SIGCONT)
            server.close()
