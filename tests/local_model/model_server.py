"""Starts and ends the server of one model, and measures the CPU time that it takes."""
import contextlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Lower than anything else that runs on the machine: a judge may wait.
NICENESS = 15
# Where `gradus` looks for local servers. A judge at the same address has the same answers in the cache of verdicts.
DEFAULT_PORTS = {"llamacpp": 8080, "lmstudio": 1234}


class ServerFailed(Exception):
    """The server of a model did not start: something else listens on its port, or it cannot read the weights."""


class ModelServer:
    def __init__(self, process, url, judge_options):
        self.process, self.url, self.judge_options = process, url, judge_options

    def cpu_seconds(self):
        """User and system time of the server so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(runtime, gguf, alias, context, threads, log, default=None):
    """A server of one model on the default port of a kind of server, as in `DEFAULT_PORTS`, or on any free port of the loopback, until the block
    ends. It also ends when this process is killed, because its standard input is then closed."""
    port = DEFAULT_PORTS[default] if default else 0
    command = [sys.executable, str(HERE / "serve.py"), str(runtime), str(gguf), alias, str(context), str(threads), str(port)]
    with open(log, "ab") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   preexec_fn=lambda: os.nice(NICENESS))
    try:
        url = process.stdout.readline().strip()
        if not url.startswith("http"):
            raise ServerFailed(f"the model server did not start on port {port or 'of its choice'}: see {log}")
        options = ["--judge", f"{default}:{alias}"] if default else ["--judge", f"llamacpp:{alias}", "--base-url", f"{url}/v1"]
        yield ModelServer(process, url, options)
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
