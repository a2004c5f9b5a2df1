"""A large store: fills it through the server, then times what a person at the page would ask for."""
import itertools
import json
import os
import random
import sys
import time
import urllib.parse

from . import spans
from .clients import Asker, Senders, percentiles

DAYS = 30
PROJECTS = 5
REQUESTS = 500
# Requests of one kind end early when they took so long, but not before there are a hundred.
MAX_MS, MIN_REQUESTS = 60_000, 100


def bodies(template, count, base_ns, spacing_ns):
    """Bodies with `count` spans: the template again and again, each time with new ids, and later."""
    left = count
    for round_ in itertools.count():
        mask = int.from_bytes(os.urandom(16), "big")
        began = base_ns + round_ * template.traces * spacing_ns
        headers = {"x-project-name": f"bench-{round_ % PROJECTS}"}
        for number, (_, places) in enumerate(template.bodies):
            if left <= 0:
                return
            left -= len(places)
            yield len(places), lambda number=number: template.body(number, mask, began, spacing_ns), headers


def fill(server, template, count):
    """Sends the spans; what that took."""
    base = time.time_ns() - DAYS * 86_400 * 10**9
    traces = template.traces * count / template.spans
    spacing = int((DAYS * 86_400 - 3_600) * 10**9 / traces)
    senders, shown = Senders(server.port, bodies(template, count, base, spacing)), 0.0
    memory = 0.0
    while senders.running():
        time.sleep(0.25)
        memory = max(memory, server.memory_mib())
        if time.monotonic() - shown > 10:
            shown, took = time.monotonic(), time.monotonic() - senders.started
            print(f"  {senders.spans:,} spans, {senders.spans / took:,.0f}/s, {server.disk_bytes() / 1e9:.2f} GB on disk, "
                  f"{server.memory_mib():.0f} MiB", file=sys.stderr, flush=True)
    if senders.failure:
        sys.exit(f"sending stopped after {senders.spans} spans: {senders.failure}\n{server.tail()}")
    wall = time.monotonic() - senders.started
    return {"spans": senders.spans, "payload_bytes": senders.bytes, "seconds": round(wall, 1), "spans_per_second": round(senders.spans / wall),
            "refused": senders.refusals(), "server_cpu_s": round(server.cpu_s(), 1), "server_peak_memory_mib": memory}


def traces_path(**parameters):
    return "/api/v1/traces?" + urllib.parse.urlencode(parameters)


class Listing:
    """Times one kind of listing, request after request."""

    def __init__(self, asker):
        self.asker, self.ids = asker, []

    def time(self, paths):
        took, found, first = [], 0, None
        for path in paths:
            status, body, ms = self.asker.get(path)
            first = first or path
            if status != 200:
                return {"error": f"GET {path}: {status} {body[:300]!r}"}
            took.append(ms)
            items = json.loads(body)["items"]
            found += len(items)
            self.ids += [item["trace_id"] for item in items[:3]]
            if is_enough(took):
                break
        return {**percentiles(took), "items_on_average": round(found / len(took), 1), "for_example": first}

    def pages(self, project, count):
        """One page after another from the newest on; the first, which needs no cursor, is not counted. A trace that
        comes twice is an error."""
        took, seen, cursor = [], set(), None
        while len(took) < count:
            path = traces_path(project=project, limit=50, **({"cursor": cursor} if cursor else {}))
            status, body, ms = self.asker.get(path)
            if status != 200:
                return {"error": f"GET {path}: {status} {body[:300]!r}"}
            answer = json.loads(body)
            ids = [item["trace_id"] for item in answer["items"]]
            if not seen.isdisjoint(ids):
                return {"error": f"GET {path}: a trace came twice"}
            took += [ms] if cursor else []
            seen.update(ids)
            self.ids += ids[:3]
            cursor = answer["next_cursor"]
            if not cursor or is_enough(took):
                break
        if not took:
            return {"error": "there is only one page"}
        return {**percentiles(took), "items_on_average": round(len(seen) / (len(took) + 1), 1), "for_example": path}


def is_enough(took_ms):
    return sum(took_ms) > MAX_MS and len(took_ms) >= MIN_REQUESTS


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def ask(server, count=REQUESTS):
    """Times listing and opening."""
    rng = random.Random(spans.SEED)
    listing, now = Listing(Asker(server.port)), time.time()
    words = spans.Prose(random.Random(spans.SEED), 1).words

    def project():
        return f"bench-{rng.randrange(PROJECTS)}"

    def window():
        start = now - rng.uniform(1, DAYS) * 86_400
        return {"from": stamp(start), "to": stamp(start + rng.choice((3_600, 21_600, 86_400)))}

    kinds = {
        "first_page": (traces_path(project=project(), limit=50) for _ in range(count)),
        "first_page_all_projects": (traces_path(limit=50) for _ in range(count)),
        "project_and_time": (traces_path(project=project(), limit=50, **window()) for _ in range(count)),
        "tool": (traces_path(project=project(), limit=50, tool=rng.choice(list(spans.TOOLS))) for _ in range(count)),
        "tool_and_time": (traces_path(project=project(), limit=50, tool=rng.choice(list(spans.TOOLS)), **window()) for _ in range(count)),
        "error": (traces_path(project=project(), limit=50, error="true") for _ in range(count)),
        "agent_and_model": (traces_path(project=project(), limit=50, agent=agent, model=model)
                            for agent, model, _ in (rng.choice(spans.AGENTS) for _ in range(count))),
        "text_common_word": (traces_path(project=project(), limit=50, q=rng.choice(words[60:200])) for _ in range(count)),
        "text_rare_word": (traces_path(project=project(), limit=50, q=rng.choice(words[2_000:])) for _ in range(count)),
        "text_absent_word": (traces_path(project=project(), limit=50, q=f"xq{rng.getrandbits(32):x}") for _ in range(count)),
    }
    results = {}
    for name, paths in kinds.items():
        results[name] = listing.time(paths)
        print(f"  {name}: {results[name]}", file=sys.stderr, flush=True)
    results["page_by_cursor"] = listing.pages("bench-0", count)
    ids = sorted(set(listing.ids))
    rng.shuffle(ids)
    results["open_one_trace"] = opened(listing.asker, ids[:count])
    for name in ("page_by_cursor", "open_one_trace"):
        print(f"  {name}: {results[name]}", file=sys.stderr, flush=True)
    return results


def opened(asker, ids):
    took, steps = [], 0
    if not ids:
        return {"error": "no trace was listed"}
    for trace in ids:
        status, body, ms = asker.get(f"/api/v1/traces/{trace}")
        if status != 200:
            return {"error": f"GET /api/v1/traces/{trace}: {status} {body[:300]!r}"}
        took.append(ms)
        steps += sum(len(trajectory["steps"]) for trajectory in json.loads(body)["trajectories"])
    return {**percentiles(took), "steps_on_average": round(steps / len(took), 1)}
