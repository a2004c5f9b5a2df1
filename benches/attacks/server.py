"""`gradus serve` under supervision: started with keys or without, bounded in memory, restarted when it ends, sampled all the time."""
import ctypes
import http.client
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import threading
import time

from collecting.servers import free_ports, without_proxies

LOOP_S, LOOP_STARTS = 60, 3
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
KEYS = {"sender": "ingest", "reader": "read,ingest", "attacker_ingest": "ingest", "attacker_read": "read"}


class SupervisedServer:
    """One server. As a service manager does, the supervisor starts it again when it ends by itself."""

    def __init__(self, binary, folder, with_keys, settings="", address_space_mb=4096):
        self.binary, self.folder, self.with_keys = os.path.abspath(binary), pathlib.Path(folder), with_keys
        self.data, self.config, self.log = self.folder / "data", self.folder / "gradus.toml", self.folder / "log.txt"
        self.address_space_mb = address_space_mb
        self.config.write_text(f"[serve]\nquiet_s = 1\ngive_up_s = 3\n{'require_key = true' if with_keys else ''}\n{settings}")
        self.port, self.grpc_port = free_ports(2)
        self.keys, self.large_trace = {}, ""
        self.process, self.should_run, self.starts = None, False, []
        self.crashes, self.stores_set_aside, self.peak_mib = [], 0, 0.0
        self.lock = threading.RLock()
        self.make_store()
        threading.Thread(target=self.supervise, daemon=True).start()

    def make_store(self):
        for name, scopes in KEYS.items() if self.with_keys else ():
            ran = subprocess.run([self.binary, "keys", "add", name, "--scopes", scopes, "--data", self.data], capture_output=True, text=True, env=without_proxies())
            if ran.returncode != 0:
                raise RuntimeError(f"gradus keys add: {ran.stderr.strip()}")
            self.keys[name] = ran.stdout.strip()

    def headers(self, name):
        return {"authorization": f"Bearer {self.keys[name]}"} if self.with_keys else {}

    def attacker_keys(self):
        return {"ingest": self.keys.get("attacker_ingest"), "read": self.keys.get("attacker_read")}

    def start(self, within_s=60):
        """Starts it and waits for /healthz; the seconds that took, or None."""
        began = time.monotonic()
        with self.lock:
            self.spawn()
            self.should_run = True
        while time.monotonic() - began < within_s:
            if self.healthy():
                return round(time.monotonic() - began, 2)
            time.sleep(0.02)
        return None

    def spawn(self):
        limit = self.address_space_mb << 20

        def bound_memory():
            # It does not outlive a measurement that is killed.
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        command = [self.binary, "serve", "--http", f"127.0.0.1:{self.port}", "--grpc", f"127.0.0.1:{self.grpc_port}", "--data", self.data, "--config", self.config]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, env=without_proxies(), preexec_fn=bound_memory)
        self.starts.append(time.monotonic())

    def supervise(self):
        while True:
            time.sleep(0.05)
            with self.lock:
                if not self.should_run:
                    continue
                self.peak_mib = max(self.peak_mib, self.memory_mib("VmHWM"))
                if self.process.poll() is None:
                    continue
                self.crashes.append({"at": time.monotonic(), "status": self.process.returncode, "log": self.log_tail(300)})
                recent = [at for at in self.starts if time.monotonic() - at < LOOP_S]
                if len(recent) > LOOP_STARTS:
                    self.set_store_aside()
                self.spawn()

    def set_store_aside(self):
        """A store that it cannot live with: the attacks that follow get a new one."""
        self.stores_set_aside += 1
        shutil.move(self.data, self.folder / f"data-{self.stores_set_aside}")
        self.starts.clear()
        self.make_store()

    def healthy(self):
        try:
            return self.get("/healthz", timeout=2)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path, timeout=30, key="reader"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout, source_address=("127.0.0.7", 0))
        try:
            connection.request("GET", path, headers=self.headers(key))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def try_json(self, path, timeout=30):
        try:
            status, body = self.get(path, timeout)
            return json.loads(body) if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def gauge(self, name):
        """A value of /metrics; None where it does not answer."""
        try:
            text = self.get("/metrics", 10)[1].decode()
        except (OSError, http.client.HTTPException):
            return None
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"{name} ")), None)

    def wait_for_grading(self, within_s):
        """Whether the ready queue became empty, and after how many seconds."""
        began = time.monotonic()
        while time.monotonic() - began < within_s:
            if self.gauge("gradus_traces_due") == 0:
                return True, round(time.monotonic() - began, 1)
            time.sleep(0.25)
        return False, round(time.monotonic() - began, 1)

    def memory_mib(self, field="VmRSS"):
        try:
            lines = pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        except OSError:
            return 0.0
        return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(field + ":")), 0.0)

    def reset_peak(self):
        with self.lock:
            self.peak_mib = 0.0
            try:
                pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
            except OSError:
                pass

    def cpu_s(self):
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def stop(self, within_s=30):
        """SIGTERM; the exit status (None where it had to be killed) and the seconds."""
        with self.lock:
            self.should_run = False
            process = self.process
        began = time.monotonic()
        process.terminate()
        try:
            status = process.wait(within_s)
        except subprocess.TimeoutExpired:
            status = None
            self.kill()
        return status, round(time.monotonic() - began, 2)

    def kill(self):
        with self.lock:
            self.should_run = False
            if self.process and self.process.poll() is None:
                self.process.kill()
                self.process.wait()

    def check_store(self):
        ran = subprocess.run([self.binary, "store", "check", "--data", self.data], capture_output=True, text=True, env=without_proxies())
        return "clean" if ran.returncode == 0 else f"status {ran.returncode}: {(ran.stdout + ran.stderr).strip()[-300:]}"

    def log_tail(self, length=2000):
        return self.log.read_text(errors="replace")[-length:] if self.log.exists() else ""

    def version(self):
        return subprocess.run([self.binary, "--version"], capture_output=True, text=True).stdout.strip()
