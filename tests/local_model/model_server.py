"""Starts and ends the server of one model, and measures the CPU time that it takes."""
import contextlib
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Lower than anything else that runs on the machine: a judge may wait.
NICENESS = 15


class ModelServer:
    def __init__(self, process, url):
        self.process, self.url = process, url

    def cpu_seconds(self):
        """User and system time of the server so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(runtime, gguf, alias, context, threads, log):
    """A server of one model on a free port of the loopback, until the block ends. It also ends when this process is killed, because its
    standard input is then closed."""
    command = [sys.executable, str(HERE / "serve.py"), str(runtime), str(gguf), alias, str(context), str(threads)]
    with open(log, "ab") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                   preexec_fn=lambda: os.nice(NICENESS))
    try:
        url = process.stdout.readline().strip()
        if not url.startswith("http"):
            raise RuntimeError(f"the model server did not start: see {log}")
        yield ModelServer(process, url)
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
