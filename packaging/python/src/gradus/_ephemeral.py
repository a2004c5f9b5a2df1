"""Starts `gradus serve --ephemeral`: a server on free ports, with a temporary store, that ends with this process."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from typing import IO, Any, Dict, Optional

from gradus import _json
from gradus._binary import GradusError, find_gradus_bin
from gradus._client import Client

#: The start takes tens of milliseconds; a machine under load may take longer.
START_TIMEOUT = 30.0
#: Longer than the server itself takes at most, so that it can remove its store.
STOP_TIMEOUT = 30.0


class EphemeralServer:
    """A server for this process. It ends when `stop` is called, and with the process in any case."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self._log: IO[bytes] = tempfile.TemporaryFile(prefix="gradus-log-")
        program = find_gradus_bin()
        # A session of its own: Ctrl-C is for the tests, which still read from the server while they are torn down.
        self._process = subprocess.Popen([program, "serve", "--ephemeral"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True)
        try:
            addresses = self._read_addresses(program)
        except BaseException:
            self.stop()
            raise
        #: Where OTLP over HTTP, the API and the web pages are.
        self.http = _json.text(addresses, "http") or ""
        self.grpc = _json.text(addresses, "grpc") or ""
        # Without a key of the environment, which is for another server.
        self.client = Client(self.http, key="")
        self.started_ns = time.time_ns()

    def _read_addresses(self, program: str) -> Dict[str, Any]:
        """The one line that the server prints when its ports are open."""
        stdout = self._process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], START_TIMEOUT)
        line = stdout.readline() if readable else b""
        if not line:
            reason = self.log_tail() or ("it printed nothing" if readable else f"it did not start within {START_TIMEOUT:.0f} s")
            raise GradusError(f"{program} serve --ephemeral: {reason}", exit_code=self._process.poll())
        addresses = json.loads(line)
        if not isinstance(addresses, dict):
            raise GradusError(f"{program} serve --ephemeral: it printed {line!r} instead of its addresses")
        return addresses

    def log_tail(self, limit: int = 2000) -> str:
        """The end of what the server has logged."""
        # By position: the server writes at the offset that it shares with this file.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), limit, max(0, size - limit)).decode("utf-8", "replace").strip()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> Optional[int]:
        """Ends the server, which removes its store. Returns its exit code. A forked process leaves it alone."""
        if os.getpid() != self.process_id:
            return None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()
        try:
            code = self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._log.close()
        return code
