"""The two servers as processes: how they are started, when they take their first span, and what they use."""
import http.client
import json
import os
import pathlib
import socket
import sqlite3
import subprocess
import sys
import time
import venv

from . import spans

HERE = pathlib.Path(__file__).resolve().parent
PHOENIX = ["arize-phoenix==20.26.1", "arize-phoenix-client==3.5.0"]
ZSTD = ["zstandard==0.25.0"]
PROTOBUF = {"content-type": "application/x-protobuf"}


class NotInstalled(Exception):
    pass


def environment(name, packages):
    """The Python of a virtual environment with these packages, made once below the cache folder."""
    folder = spans.CACHE / f"collecting-{name}"
    wanted, made = "\n".join(packages), folder / "packages.txt"
    if not (made.exists() and made.read_text() == wanted):
        try:
            venv.create(folder, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotInstalled(f"no virtual environment: {error}") from error
        pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        ran = subprocess.run(pip, capture_output=True, text=True)
        if ran.returncode != 0:
            raise NotInstalled((ran.stderr.strip().splitlines() or ["pip failed"])[-1])
        made.write_text(wanted)
    return folder / "bin" / "python"


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def without_proxies():
    return {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}


def one_span(project):
    """The smallest request: one span for a project of its own."""
    span = spans.part(1, os.urandom(16)) + spans.part(2, os.urandom(8)) + spans.part(5, b"first")
    now = time.time_ns()
    span += b"\x39" + now.to_bytes(8, "little") + b"\x41" + (now + 1000).to_bytes(8, "little")
    resource = spans.part(1, spans.attribute("openinference.project.name", project, 1))
    return spans.part(1, resource + spans.part(2, spans.part(2, span)))


class Server:
    """A server process with a data folder; `port` is its HTTP port."""

    name, health, first_spans = "", "/healthz", 1

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.data = self.folder / "data"
        self.log = self.folder / "log.txt"
        self.port, self.grpc_port = free_ports(2)
        command, extra = self.command()
        self.started = time.monotonic()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                            env=without_proxies() | extra, cwd=self.folder)
        self.start_to_first_accepted_ms = self.wait_for_first()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def wait_for_first(self, within_s=300):
        """Milliseconds from the start of the process to the first span it accepts."""
        while time.monotonic() - self.started < within_s:
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended with status {self.process.returncode}: {self.tail()}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
                connection.request("POST", "/v1/traces", one_span("first"), PROTOBUF)
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    return round((time.monotonic() - self.started) * 1000, 1)
            except OSError:
                pass
            time.sleep(0.002)
        sys.exit(f"{self.name} took no span within {within_s} s: {self.tail()}")

    def tail(self):
        return self.log.read_text(errors="replace")[-2000:]

    def get(self, path, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status != 200:
            sys.exit(f"{self.name}: GET {path}: {answer.status} {body[:500]!r}")
        return body

    def pids(self):
        """The process and all below it."""
        parents = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def cpu_s(self):
        """User and system time of the process, what is below it, and what it waited for."""
        ticks = 0
        for pid in self.pids():
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def written(self):
        """Bytes that were passed to write calls, and how many calls there were: also those that the system never wrote to the disk. Unlike CPU time
        they are the same on a busy machine."""
        totals = {"wchar": 0, "syscw": 0}
        for pid in self.pids():
            try:
                lines = pathlib.Path(f"/proc/{pid}/io").read_text().splitlines()
            except OSError:
                continue
            for name, _, value in (line.partition(":") for line in lines):
                if name in totals:
                    totals[name] += int(value)
        return totals["wchar"], totals["syscw"]

    def memory_mib(self, field="VmRSS"):
        total = 0
        for pid in self.pids():
            try:
                lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) for line in lines if line.startswith(field + ":"))
        return round(total / 1024, 1)

    def disk_bytes(self):
        total = 0
        for path in self.data.rglob("*"):
            try:
                total += path.stat().st_blocks * 512 if path.is_file() else 0
            except OSError:
                continue
        return total

    def settle(self, quiet_s=3.0, within_s=600):
        """Waits until it does next to nothing any more; its CPU time then."""
        end, before = time.monotonic() + within_s, self.cpu_s()
        while time.monotonic() < end:
            time.sleep(quiet_s)
            now = self.cpu_s()
            if now - before < 0.03 * quiet_s:
                break
            before = now
        return self.cpu_s()

    def stop(self):
        """Ends it as an operator would; its exit status, and the seconds that took."""
        start = time.monotonic()
        self.process.terminate()
        try:
            status = self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        return status, round(time.monotonic() - start, 2)


class Gradus(Server):
    name = "gradus"

    def __init__(self, folder, binary, config=None):
        self.binary, self.config = os.path.abspath(binary), config
        super().__init__(folder)

    def command(self):
        command = [self.binary, "serve", "--http", f"127.0.0.1:{self.port}", "--grpc", f"127.0.0.1:{self.grpc_port}", "--data", str(self.data)]
        return command + (["--config", os.path.abspath(self.config)] if self.config else []), {}

    def stored(self):
        """Spans stored, without the first one."""
        projects = json.loads(self.get("/api/v1/projects"))["items"]
        return sum(project["spans"] for project in projects if project["name"] != "first")

    def version(self):
        return subprocess.run([self.binary, "--version"], capture_output=True, text=True).stdout.strip()

    def check(self):
        """What `gradus store check` says, when the server is stopped."""
        ran = subprocess.run([self.binary, "store", "check", "--data", str(self.data)], capture_output=True, text=True)
        return "clean" if ran.returncode == 0 else f"status {ran.returncode}: {(ran.stdout + ran.stderr).strip()[-500:]}"


class Phoenix(Server):
    name = "phoenix"

    def __init__(self, folder):
        self.python = environment("phoenix", PHOENIX)
        super().__init__(folder)

    def command(self):
        self.data.mkdir(exist_ok=True)
        settings = {"PHOENIX_WORKING_DIR": str(self.data), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(self.port),
                    "PHOENIX_GRPC_PORT": str(self.grpc_port), "PHOENIX_TELEMETRY_ENABLED": "false",
                    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false", "PHOENIX_DISABLE_AGENT_ASSISTANT": "true"}
        return [str(self.python), str(HERE / "phoenix_serve.py")], settings

    def stored(self):
        """Spans in its database, read beside it, without the first one."""
        database = sqlite3.connect(f"file:{self.data / 'phoenix.db'}?mode=ro", uri=True, timeout=30)
        try:
            return database.execute("SELECT count(*) FROM spans").fetchone()[0] - self.first_spans
        except sqlite3.OperationalError:
            return 0
        finally:
            database.close()

    def version(self):
        return ", ".join(PHOENIX)
