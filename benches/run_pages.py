#!/usr/bin/env python3
"""How fast the page answers over a large store: for each page, the server's time to the last byte over loopback.

  benches/run_pages.py GRADUS [--browser] [--spans 1000000] [--labels 20000] [--requests 100] [--limit-ms 100] [--data DIR] [--out FILE]

The traces are those of run_collecting.py: ReAct agents' in three projects and three versions, graded by rules as they
arrive. Beside them are labels of people, two runs and alerts. The store is made anew, unless --data names
the folder of an earlier measurement: then it is made there once, and looked at again and again.

The overview is kept for some seconds where it took long to make, so each request asks for another time, and none is
answered with what was kept: what counts is how long a page takes to be made. It fails where the slowest but 5 of 100
requests for a page take too long, or where a page is too large.

A run of 2,000 steps is among the pages. With --browser it is also opened in Chromium, again and again: milliseconds until
it is loaded and drawn, and the longest task of the page while all of it is scrolled through.
"""
import argparse
import datetime
import gzip
import http.client
import itertools
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

from collecting import spans
from collecting.servers import PROTOBUF, free_ports, without_proxies
from machine import machine

TEMPLATE = 100_000
LEAST_ROUNDS = 9
DAY_NS = 86_400_000_000_000
DAYS = 30
PROJECTS = [b"bench", b"shop1", b"code2"]
VERSIONS = ["1.4.0", "1.5.0", "1.6.0"]
LARGEST = 100_000
PEERS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "peers"
STEPS = 2000
SETTINGS = """
[serve]
quiet_s = 0.5

[[alert]]
name = "tool choice"
when = "thought_to_tool < 0.95 over 7d, at least 5 steps"

[[alert]]
name = "calls of the shop"
project = "shop1"
when = "call_validity < 0.9 over 1d, at least 5 steps"

[[rule]]
name = "everything"
"""


class Client:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def close(self):
        """The next request opens a new connection: one that says nothing for long is closed by the server."""
        self.connection.close()

    def post(self, path, body, headers):
        self.connection.request("POST", path, bytes(body), headers)
        answer = self.connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path}: the server answers {answer.status}: {said[:300]}")

    def get(self, path):
        """Milliseconds, bytes as they were sent, and the answer."""
        started = time.perf_counter()
        self.connection.request("GET", path, headers={"accept": "text/html", "accept-encoding": "gzip"})
        answer = self.connection.getresponse()
        body = answer.read()
        took = (time.perf_counter() - started) * 1000
        if answer.status != 200:
            raise SystemExit(f"{path}: {answer.status}")
        text = gzip.decompress(body) if answer.headers.get("content-encoding") == "gzip" else body
        return took, len(body), text.decode()

    def json(self, path):
        return json.loads(self.get(path)[2])


def varint(body, at):
    number, shift = 0, 0
    while True:
        byte = body[at]
        number, shift, at = number | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return number, at


def of(body, project, version):
    """A request of another project, by agents of a version."""
    _, at = varint(body, 1)
    length, start = varint(body, at + 1)
    resource, rest = bytes(body[start:start + length]), bytes(body[start + length:])
    # All of a length, so that nothing around them changes.
    key = b"agent.version\x12\x07\n\x05"
    return spans.part(1, spans.part(1, resource.replace(b"bench", project)) + rest.replace(key + b"1.4.0", key + version.encode()))


def fill(client, count):
    """The template again and again, under other ids, over the last days; each time another project and version."""
    template = spans.template(max(1_000, min(count // LEAST_ROUNDS, TEMPLATE)))
    client.close()
    rounds = math.ceil(count / template.spans)
    now = time.time_ns()
    spacing = DAYS * DAY_NS // (rounds * template.traces)
    kinds = itertools.cycle(itertools.product(PROJECTS, VERSIONS))
    for turn, (project, version) in zip(range(rounds), kinds):
        base = now - DAYS * DAY_NS + turn * spacing
        for number in range(len(template.bodies)):
            body = template.body(number, (turn + 1) * 0x9E37_79B9_7F4A_7C15, base, spacing * rounds)
            client.post("/v1/traces", of(body, project, version), PROTOBUF)
    return rounds * template.spans


def add_long_run(client):
    """A run of many steps; its trace."""
    sys.path.insert(0, str(PEERS))
    import page_world
    trace, body = page_world.long_run(time.time_ns() - 7_200_000_000_000, STEPS)
    client.post("/v1/traces", json.dumps(body).encode(), {"content-type": "application/json"})
    return trace


def browse(port, trace, opens):
    """How Chromium opens the run of many steps."""
    sys.path.insert(0, str(PEERS))
    import page
    script = pathlib.Path(__file__).resolve().parent / "pages_browser.py"
    command = [page.python_for("page", page.PACKAGES), script, page.chromium(), f"http://127.0.0.1:{port}/traces/{trace}", str(opens)]
    ran = subprocess.run(command, env=without_proxies(), capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"the browser failed: {(ran.stdout + ran.stderr).strip()[-1000:]}")
    return json.loads(ran.stdout)


def settle(client):
    started = time.monotonic()
    while "\ngradus_traces_due 0.0\n" not in client.get("/metrics")[2]:
        if time.monotonic() - started > 3600:
            raise SystemExit("the traces were not assembled")
        time.sleep(1)


def label(client, count):
    """What two people say of steps, right and wrong; how many labels there are."""
    items, cursor, given = [], "", 0

    def send():
        nonlocal items, given
        client.post("/api/v1/annotations", json.dumps({"items": items}).encode(), {"content-type": "application/json"})
        given, items = given + len(items), []

    while given + len(items) < count:
        page = client.json(f"/api/v1/traces?limit=500{cursor}")
        for trajectory in (one for trace in page["items"] for one in trace["trajectories"]):
            for step, author, name in itertools.product(range(1, min(2, trajectory["steps"]) + 1), ("ann", "bob"), ("thought_to_tool", "call_validity")):
                wrong = (hash((trajectory["trajectory_id"], step)) + len(author)) % 4 == 0
                items.append({"target": f"trajectory:{trajectory['trajectory_id']}#{step}", "name": name, "author": author, "identifier": author,
                              "label": "incorrect" if wrong else "correct", "explanation": "looked at"})
                if len(items) == 1000:
                    send()
            if given + len(items) >= count:
                break
        if not page["next_cursor"]:
            break
        cursor = f"&cursor={page['next_cursor']}"
    if items:
        send()
    return given


def judge(gradus, port, data):
    """Two runs over the same trajectories, where the server shows them."""
    for more in (["--evaluators", "thought_to_tool,call_validity"], ["--fresh"]):
        command = [gradus, "eval", f"gradus://127.0.0.1:{port}/bench", "--sample", "2000", "--judge", "offline", "--quiet", "--state-dir", data, *more]
        ran = subprocess.run(command, env=without_proxies(), capture_output=True, text=True)
        if ran.returncode != 0:
            raise SystemExit(f"gradus eval: {ran.stderr.strip()[-500:]}")


def views(requests, **more):
    """Addresses of the overview, each of another time, so that no answer is one that was kept."""
    today = datetime.datetime.now(datetime.UTC).date()
    query = "".join(f"&{name}={value}" for name, value in more.items())
    for number in range(requests):
        # First over all that there is, then over less and less.
        first = today - datetime.timedelta(days=DAYS + 2 - number % DAYS)
        last = today + datetime.timedelta(days=number // DAYS)
        yield f"/?from={first}&to={last}{query}"


def last_of_run(data, run):
    """The last trajectory of a run: its page reads the files of the run from their beginning."""
    with open(next(data.glob(f"**/{run}/outcomes.jsonl"))) as lines:
        *_, last = lines
    return urllib.parse.quote(json.loads(last)["trajectory_id"], safe="")


def pages(client, requests, long_run, data):
    """Each page with the addresses that are asked for."""
    # What goes wrong most often: rules and traces decide it.
    group = client.json("/api/v1/failure-groups")["items"][0]
    # In a project of its own is the run of many steps, which is measured apart.
    listed = client.get(f"/traces?project=bench&wrong={group['evaluator']}")[2]
    trace = re.search(r'data-id="([0-9a-f]{32})"', listed).group(1)
    older = re.search(r'rel="next" href="([^"]+)"', client.get("/traces")[2]).group(1).replace("&#38;", "&")
    trajectory = client.json(f"/api/v1/traces/{trace}")["trajectories"][0]["trajectory_id"]
    tools = re.findall(r'href="(/traces\?[^"]*tool=[^"]*wrong=[^"]*)"', client.get(f"/?from={datetime.date.today() - datetime.timedelta(days=DAYS)}")[2].replace("&#38;", "&"))
    tool = client.json(f"/api/v1/traces/{trace}")["trajectories"][0]["steps"][0]["tool"]
    tools = tools or [f"/traces?tool={tool}&wrong={group['evaluator']}"]
    span = re.search(rf'href="(/traces/{trace}/spans/[0-9a-f]{{16}})"', client.get(f"/traces/{trace}/spans")[2]).group(1)
    session = re.search(r'href="(/sessions/[^"]+)"', client.get(f"/traces/{trace}")[2]).group(1).replace("&#38;", "&")
    # Two words of a request that is there.
    words = "+".join(re.findall("[A-Za-z]{5,}", client.json("/api/v1/traces?limit=1")["items"][0]["trajectories"][0]["query"])[:2])
    runs = [run["run_id"] for run in client.json("/api/v1/runs")["items"] if not run["is_live"]]
    always = itertools.repeat
    found = {name: views(requests, **more) for name, more in {
        "overview": {}, "overview, a project": {"project": "shop1"}, "overview, an agent": {"agent": "code_agent"}, "overview, a version": {"project": "bench", "version": "1.5.0"},
        "overview, agent and version": {"project": "bench", "agent": "code_agent", "version": "1.5.0"}, "overview, three names of all projects": {"agent": "code_agent", "version": "1.5.0", "model": "claude-sonnet-5-5"},
        "overview, nobody": {"agent": "nobody", "version": "none"}}.items()}
    found |= {name: always(path) for name, path in {
        "traces": "/traces", "older traces": older, "traces, a label": f"/traces?label={group['evaluator']}%3D{group['label']}", "traces, found wrong": f"/traces?wrong={group['evaluator']}&version=1.5.0",
        "a failure group": f"/groups/{group['key']}", "traces, a failure group": f"/traces?group={group['key']}", "failure groups, API": "/api/v1/failure-groups",
        "traces, a tool found wrong": tools[0], "traces, words": f"/traces?q={words}", "traces, a word of most": "/traces?q=which", "traces, a condition": "/traces?where=span_kind+%3D%3D+%27TOOL%27+and+status_code+%3D%3D+%27ERROR%27", "rows alone": "/traces/rows",
        "one trace": f"/traces/{trace}", f"a run of {STEPS:,} steps": f"/traces/{long_run}", "found in a trace": f"/traces/{trace}?q=the", "a text": f"/traces/{trace}/text?trajectory={trajectory}&step=1&part=thought", "its spans": f"/traces/{trace}/spans", "one span": span, "a session": session, "sessions": "/sessions", "sessions of a project": "/sessions?project=bench", "sessions, API": "/api/v1/sessions",
        "review": "/review", "review, all": "/review?which=all", "agreement": "/agreement", "agreement of a project": "/agreement?project=shop1", "runs": "/runs", "one run": f"/runs/{runs[0]}",
        "a trajectory of a run": f"/runs/{runs[0]}/trajectories/{last_of_run(data, runs[0])}", "two runs": f"/compare?a={runs[1]}&b={runs[0]}", "versions": "/versions?range=all", "versions of a project": "/versions?range=all&project=shop1", "version against version": "/compare?by=version&a=1.4.0&b=1.5.0&project=bench",
        "traces, most flagged": "/traces?sort=wrong", "traces, longest of a version": "/traces?sort=duration&version=1.5.0", "review of a group": f"/review?group={group['key']}", "rubrics": "/rubrics", "a rubric on a step": f"/rubrics/thought_to_tool?trajectory={trajectory}&step=1", "alerts": "/alerts", "server": "/server"}.items()}
    return found


def measure(client, addresses, requests):
    times, size = [], 0
    for path in itertools.islice(addresses, requests):
        took, sent, _ = client.get(path)
        times.append(took)
        size = max(size, sent)
    times.sort()
    return {"p50_ms": round(statistics.median(times), 1), "p95_ms": round(times[math.ceil(0.95 * len(times)) - 1], 1), "worst_ms": round(times[-1], 1), "bytes_sent": size}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gradus")
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--limit-ms", type=float, default=100)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--out")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = given.data or pathlib.Path(folder) / "data"
        # Written when the store is as it should be: how much is in it.
        made = data / "made.json"
        http_port, grpc_port = free_ports(2)
        config = pathlib.Path(folder) / "gradus.toml"
        config.write_text(SETTINGS)
        command = [given.gradus, "serve", "--data", data, "--config", config, "--http", f"127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
        with open(pathlib.Path(folder) / "log.txt", "wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=without_proxies())
        try:
            client = Client(http_port)
            for _ in range(300):
                try:
                    client.get("/readyz")
                    break
                except OSError:
                    client = Client(http_port)
                    time.sleep(0.1)
            started = time.monotonic()
            if made.exists():
                count, labels, long_run = json.loads(made.read_text())
            else:
                count = fill(client, given.spans)
                long_run = add_long_run(client)
                settle(client)
                print(f"{count:,} spans after {time.monotonic() - started:.0f} s", flush=True)
                labels = label(client, given.labels)
                client.close()
                judge(given.gradus, http_port, data)
                client.close()
                made.write_text(json.dumps([count, labels, long_run]))
            print(f"{count:,} spans, {labels:,} labels and two runs after {time.monotonic() - started:.0f} s", flush=True)
            found = {}
            for name, addresses in pages(client, given.requests, long_run, data).items():
                found[name] = one = measure(client, addresses, given.requests)
                print(f"{name:40} p50 {one['p50_ms']:7.1f} ms   p95 {one['p95_ms']:7.1f} ms   worst {one['worst_ms']:7.1f} ms   {one['bytes_sent'] / 1000:6.1f} KB", flush=True)
            shown = browse(http_port, long_run, 10) if given.browser else None
            if shown:
                print(f"{STEPS:,} steps in Chromium: " + ", ".join(f"{name} {value}" for name, value in shown.items()), flush=True)
        finally:
            process.terminate()
            process.wait(60)
    result = {"machine": machine(), "spans": count, "labels": labels, "projects": len(PROJECTS), "versions": len(VERSIONS), "requests": given.requests, "limit_ms": given.limit_ms, "pages": found} | ({"browser": shown} if shown else {})
    if given.out:
        pathlib.Path(given.out).write_text(json.dumps(result, indent=2) + "\n")
    slow = [name for name, one in found.items() if one["p95_ms"] >= given.limit_ms]
    large = [name for name, one in found.items() if one["bytes_sent"] >= LARGEST]
    sys.exit(f"too slow: {slow}; too large: {large}" if slow or large else 0)


if __name__ == "__main__":
    main()
