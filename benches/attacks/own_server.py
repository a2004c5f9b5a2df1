"""Attacks that are about a server's settings or its end, each on a server of its own."""
import gzip
import http.client
import pathlib
import secrets
import time

from . import wire
from .poison import KEYS, agent_trace, encode_trace, json_shapes
from .server import SupervisedServer
from .target import GZIP, PROTOBUF

FUTURE_NS, LAST_YEAR_NS = 7_000_000_000 * 10**9, 365 * 86_400 * 10**9


def post(server, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60, source_address=("127.0.0.8", 0))
    try:
        connection.request("POST", "/v1/traces", body, {**PROTOBUF, **GZIP})
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class FutureRetention:
    """Traces from 2191 under `max_size`, then real ones: the real ones arrived last, so they stay.

    Retention looks every 30 seconds; `begin` fills the store, and `end` is called when that time has passed."""

    MAX_SIZE, SIZE, JUNK, REAL = 8_000_000, 20_000, 900, 60

    def __init__(self, binary, folder):
        folder = pathlib.Path(folder) / "retention"
        folder.mkdir()
        self.server = SupervisedServer(binary, folder, False, f'[serve.retention]\nmax_size = "{self.MAX_SIZE // 1_000_000}MB"\n')
        self.began = None

    def begin(self):
        self.server.start()
        self.send("junk", FUTURE_NS, self.JUNK)
        self.send("real", time.time_ns(), self.REAL)
        # Sent late, with times of last year: as new as the others.
        self.send("backfill", time.time_ns() - LAST_YEAR_NS, self.REAL // 3)
        self.began = time.monotonic()

    def send(self, project, start_ns, count):
        for first in range(0, count, 20):
            spans = [wire.encode_span(wire.new_trace_id(), wire.new_span_id(), "agent", {"openinference.span.kind": "AGENT", "input.value": secrets.token_hex(self.SIZE // 2)}, b"", start_ns, start_ns + 1000)
                     for _ in range(min(20, count - first))]
            status = post(self.server, gzip.compress(wire.encode_export(spans, project), 1))
            if status != 200:
                raise RuntimeError(f"retention: {project}: status {status}")

    def count(self, project):
        page = self.server.try_json(f"/api/v1/traces?limit=500&project={project}")
        return len(page["items"]) if page else 0

    def end(self, within_s=120):
        """Waits until something was removed, and a little longer."""
        projects = lambda: {one["name"]: one["traces"] if "traces" in one else one["spans"] for one in (self.server.try_json("/api/v1/projects") or {"items": []})["items"]}
        end = self.began + within_s
        total = self.JUNK + self.REAL + self.REAL // 3
        while time.monotonic() < end and sum(projects().values()) >= total:
            time.sleep(1)
        before = None
        while time.monotonic() < end and before != (before := projects()):
            time.sleep(3)
        found = {"real_kept": self.count("real"), "backfill_kept": self.count("backfill"), "future_kept": self.count("junk")}
        self.server.kill()
        return {**found, "real_sent": self.REAL, "backfill_sent": self.REAL // 3, "future_sent": self.JUNK, "removed_anything": sum(found.values()) < total,
                "passed": found["real_kept"] == self.REAL and found["backfill_kept"] == self.REAL // 3 and sum(found.values()) < total}


def poison_restart(binary, folder, nodes, rounds=3):
    """Poison that was acknowledged, a kill, and starts within 1.6 GB: does it live, and does it grade what comes after?"""
    folder = pathlib.Path(folder) / "poison"
    folder.mkdir()
    server = SupervisedServer(binary, folder, False, address_space_mb=1600)
    server.start()
    shapes, statuses = json_shapes(nodes), []
    for (name, text), key in zip(shapes.items(), KEYS):
        statuses.append(post(server, gzip.compress(encode_trace(agent_trace(key, text), "poison"), 6)))
    rounds_seen = []
    for _ in range(rounds):
        server.kill()
        crashes = len(server.crashes)
        started = server.start()
        project = "good-" + secrets.token_hex(4)
        good = encode_trace(agent_trace("input.value", "good"), project)
        status, began, graded = post(server, gzip.compress(good)), time.monotonic(), False
        while time.monotonic() - began < 30 and not graded:
            page = server.try_json(f"/api/v1/traces?limit=20&project={project}", 10)
            graded = bool(page) and any(item["trajectories"] for item in page["items"])
            time.sleep(0.2)
        rounds_seen.append({"start_s": started, "crashes": len(server.crashes) - crashes, "good_status": status, "good_graded": graded})
    log = server.log_tail(300)
    server.kill()
    survived = all(one["start_s"] is not None and one["crashes"] == 0 and one["good_graded"] for one in rounds_seen)
    return {"statuses": {str(one): statuses.count(one) for one in sorted(set(statuses), key=str)}, "rounds": rounds_seen, "crashes": len(server.crashes),
            "peak_mib": round(server.peak_mib), "passed": survived and not server.crashes, "log": "" if survived else log}


