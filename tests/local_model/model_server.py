"""Starts and ends the server of one model, and measures the CPU time that it takes."""
import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

# Lower than anything else that runs on the machine: a judge may wait.
NICENESS = 15
# Where `gradus` looks for local servers. A judge at the same address has the same answers in the cache of verdicts.
DEFAULT_PORTS = {"llamacpp": 8080, "lmstudio": 1234}
# Loading weights from a slow disk takes minutes.
MAX_START_S = 600
PR_SET_PDEATHSIG = 1


class ServerFailed(Exception):
    """The server of a model did not start: something else listens on its port, or it cannot read the weights."""


class ModelServer:
    def __init__(self, process, url, judge_options):
        self.process, self.url, self.judge_options = process, url, judge_options

    def cpu_seconds(self):
        """User and system time of the server so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def become_background_child():
    """Runs in the server before it starts. It must not outlive this process, however that ends."""
    os.nice(NICENESS)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def reserve_port(port):
    """The port, or any free one for 0. Whatever else listens on it would be measured in place of the model."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(("127.0.0.1", port))
        except OSError as error:
            raise ServerFailed(f"port {port} of the model server: {error.strerror}") from error
        return bound.getsockname()[1]


def wait_until_ready(process, url, log):
    began = time.monotonic()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while process.poll() is None and time.monotonic() - began < MAX_START_S:
        try:
            with opener.open(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise ServerFailed(f"the model server did not start at {url}: see {log}")


@contextlib.contextmanager
def serving(runtime, gguf, alias, context, threads, log, default=None, slots=1):
    """A server of one model on the default port of a kind of server, as in `DEFAULT_PORTS`, or on any free port of the loopback, until the block
    ends. Each of its slots answers one question at a time within `context` tokens, and keeps the prefix that questions share."""
    port = reserve_port(DEFAULT_PORTS[default] if default else 0)
    command = [runtime, "--model", gguf, "--alias", alias, "--host", "127.0.0.1", "--port", port, "--ctx-size", context * slots, "--parallel", slots,
               "--threads", threads, "--threads-batch", threads, "--cache-ram", 0, "--no-warmup", "--no-ui"]
    with open(log, "ab") as output:
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                   preexec_fn=become_background_child)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until_ready(process, url, log)
        options = ["--judge", f"{default}:{alias}"] if default else ["--judge", f"llamacpp:{alias}", "--base-url", f"{url}/v1"]
        yield ModelServer(process, url, options)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
