"""Three servers on one PostgreSQL under load, with everything between them breakable: senders that repeat what was not acknowledged, a judge
that counts calls, and proxies between each server and the database."""
import collections
import contextlib
import json
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from counting_judge import CountingJudge
from fault_database import DatabasePair
from loopback_proxy import Proxy, ProxyLoop
from postgres_cluster import wait_for
from postgres_servers import Node, agent_run, environment, request_of

NODES = 3
SENDERS = 6
# Each sender begins a run after this time, so that the load is the same on a fast and on a slow machine.
SEND_EVERY_S = 0.3
SEND_TIMEOUT_S = 3
RETRY_AFTER_S = 0.1
# How long senders may take to finish what they began.
STOPS_WITHIN_S = 120
# A model takes its time, so that questions are under way whenever a server dies.
JUDGE_DELAY_S = 0.5
# One run in so many belongs to the project with a budget, and so many of each sender at first: all servers are at the budget at once.
CAPPED_EVERY, CAPPED_FIRST = 4, 8
PROJECT, CAPPED = "faults", "capped"
CONCURRENCY = 4
TOKENS_PER_CALL = (1000, 10)
USD_PER_TOKEN = 1e-6
COST_PER_CALL = sum(TOKENS_PER_CALL) * USD_PER_TOKEN
BUDGET_CALLS = 12


def fault_settings(judge_url):
    """The same file for all servers. `capped` may ask for a part of its runs only."""
    rule = f'judge = "openai:scripted"\nbase_url = "{judge_url}"\nevaluators = ["sequence_optimality"]\n'
    return (f'\n[judge]\nconcurrency = {CONCURRENCY}\nmax_tokens = 64\n\n[eval]\nprices = "prices.toml"\n\n'
            f'[[rule]]\nname = "{CAPPED}"\nproject = "{CAPPED}"\ndaily_budget_usd = {BUDGET_CALLS * COST_PER_CALL:.6f}\n{rule}\n[[rule]]\nname = "{PROJECT}"\n{rule}')


class FaultNode(Node):
    """A server whose clock can be set, and which is started again until it runs."""

    def __init__(self, gradus, address, folder, name, settings, clock_library):
        self.clock = pathlib.Path(folder, f"{name}.clock")
        self.clock.write_text("+0")
        variables = {"OPENAI_API_KEY": name}
        if clock_library:
            variables |= {"LD_PRELOAD": clock_library, "FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": "1"}
        self.name, self.statuses = name, collections.Counter()
        pathlib.Path(folder, name).mkdir()
        pathlib.Path(folder, name, "prices.toml").write_text(f"[scripted]\ninput = {USD_PER_TOKEN * 1e6}\noutput = {USD_PER_TOKEN * 1e6}\n")
        super().__init__(gradus, address, folder, name, settings, variables)

    def post(self, spans):
        """Whether the spans were acknowledged."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/traces", json.dumps(spans).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=SEND_TIMEOUT_S) as answer:
                status, reply = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, reply = error.code, b""
        except OSError:
            status, reply = "no answer", b""
        if b"rejected" in reply.lower():
            status = "rejected"
        self.statuses[status] += 1
        return status == 200

    def restart(self):
        """A server refuses to start while its database is away, so it is started again as a supervisor would."""
        def try_start():
            with contextlib.suppress(AssertionError):
                return self.start()

        wait_for(try_start, f"{self.name} to start again", 120)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


class Senders:
    """Threads that send runs, each span to any server, and repeat until it is acknowledged."""

    def __init__(self, nodes, seed):
        self.nodes, self.lock = nodes, threading.Lock()
        # No more runs are begun; and those that were begun are not finished either.
        self.is_over, self.is_abandoned = threading.Event(), threading.Event()
        # Span ids by trace: what was acknowledged, and what was ever sent.
        self.acknowledged, self.sent = collections.defaultdict(set), collections.defaultdict(set)
        self.project_of = {}
        self.threads = [threading.Thread(target=self.send_runs, args=(random.Random(f"{seed} {number}"), number)) for number in range(SENDERS)]
        for thread in self.threads:
            thread.start()

    def send_runs(self, draw, number):
        count = 0
        while not self.is_over.wait(SEND_EVERY_S if count > CAPPED_FIRST else 0):
            count += 1
            is_capped = count <= CAPPED_FIRST or (count + number) % CAPPED_EVERY == 0
            trace, project = f"{draw.getrandbits(128):032x}", CAPPED if is_capped else PROJECT
            spans = agent_run(trace)
            # The judge tells projects and runs apart by the text.
            query = next(one for one in spans[0]["attributes"] if one["key"] == "input.value")
            query["value"]["stringValue"] = f"how many lamps are there in {project}? ({trace})"
            draw.shuffle(spans)
            with self.lock:
                self.project_of[trace] = project
            for part in (spans[:2], spans[2:]):
                self.send(draw, trace, part, project)

    def send(self, draw, trace, spans, project):
        ids = {one["spanId"] for one in spans}
        with self.lock:
            self.sent[trace] |= ids
        while not draw.choice(self.nodes).post(request_of(spans, project)):
            if self.is_abandoned.wait(RETRY_AFTER_S):
                return
        with self.lock:
            self.acknowledged[trace] |= ids

    def complete(self):
        """Traces of which every span was acknowledged."""
        with self.lock:
            return {trace for trace, ids in self.acknowledged.items() if len(ids) == 5}

    def stop(self):
        self.is_over.set()
        end = time.monotonic() + STOPS_WITHIN_S
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
        self.is_abandoned.set()


class JudgeLog:
    """When which server asked for which project."""

    def __init__(self):
        self.calls, self.lock = [], threading.Lock()

    def record(self, headers, body):
        key = {name.lower(): value for name, value in headers.items()}.get("authorization", "").removeprefix("Bearer ")
        project = CAPPED if f"lamps are there in {CAPPED}?".encode() in body else PROJECT
        with self.lock:
            self.calls.append((time.monotonic(), key, project))
        time.sleep(JUDGE_DELAY_S)

    def first_of_others(self, name, since):
        """When another server asked first after a time; `None` if none did."""
        with self.lock:
            return next((at for at, key, _ in self.calls if at > since and key != name), None)

    def is_asking(self, name):
        """Whether a call of a server is under way."""
        since = time.monotonic() - JUDGE_DELAY_S / 2
        with self.lock:
            return any(key == name for at, key, _ in reversed(self.calls[-200:]) if at > since)

    def count(self, project):
        with self.lock:
            return sum(1 for _, _, called in self.calls if called == project)


def link_host(number):
    return f"127.0.1.{number + 1}"


class World:
    """All of it. `clock_library` is libfaketime, or `None` without it."""

    def __init__(self, gradus, programs, folder, seed, clock_library):
        self.gradus, self.folder = gradus, pathlib.Path(folder)
        self.pair = DatabasePair(programs)
        self.proxies = ProxyLoop()
        self.log = JudgeLog()
        self.judge = CountingJudge(on_call=self.log.record, usage=TOKENS_PER_CALL)
        # For each server one proxy to each database server, at an address of its own.
        self.links = [[Proxy(self.proxies, server.port, link_host(number)) for server in self.pair.servers] for number in range(NODES)]
        self.nodes, self.senders = [], None
        try:
            for number in range(NODES):
                self.nodes.append(FaultNode(gradus, self.address(number), folder, f"node{number}", fault_settings(self.judge.url), clock_library))
            self.senders = Senders(self.nodes, seed)
        except BaseException:
            self.close()
            raise

    def address(self, number):
        hosts = ",".join(f"{proxy.host}:{proxy.port}" for proxy in self.links[number])
        return f"postgres://gradus@{hosts}/faults?target_session_attrs=read-write"

    def graded(self):
        """Traces of the project without a budget that are assembled and judged; `None` while the database does not answer."""
        rows = self.pair.primary.look(
            "SELECT encode(trace_id, 'hex') FROM gradus.trace JOIN gradus.project ON project.no = trace.project WHERE project.name = 'faults' "
            "AND NOT EXISTS (SELECT 1 FROM gradus.due WHERE due.story = trace.story) "
            "AND EXISTS (SELECT 1 FROM gradus.trajectory WHERE trajectory.trace = trace.no) "
            "AND NOT EXISTS (SELECT 1 FROM gradus.ungraded JOIN gradus.trajectory ON trajectory.no = ungraded.trajectory WHERE trajectory.trace = trace.no)")
        return None if rows is None else {row[0] for row in rows}

    def wanted(self):
        """What is to be graded of what was acknowledged so far."""
        return {trace for trace in self.senders.complete() if self.senders.project_of[trace] == PROJECT}

    def wait_until_graded(self, traces, seconds):
        """Waits until these traces are graded."""
        def are_graded():
            return traces <= (self.graded() or set())

        try:
            wait_for(are_graded, "", seconds)
        except AssertionError:
            left = traces - (self.graded() or set())
            raise AssertionError(f"{len(left)} of {len(traces)} acknowledged traces are not graded after {seconds} s: {sorted(left)[:3]}; queued: {self.queued()}") from None

    def queued(self):
        """Some of what waits, for a message."""
        look = self.pair.primary.look
        return {
            "to assemble": look("SELECT story, attempts, is_started, is_suspect, owner, leased_until - now(), quarantined_ns, reason FROM gradus.due LIMIT 5"),
            "to judge": look("SELECT trajectory, attempts, delays, not_before_ns / 1000000000 - extract(epoch FROM now()), owner, leased_until - now() FROM gradus.ungraded WHERE rule = 'faults' LIMIT 5"),
        }

    def command(self, *arguments):
        return subprocess.run([self.gradus, *arguments], cwd=self.folder, env=environment(self.address(0)), capture_output=True, text=True, timeout=600)

    def close(self):
        self.judge.release()
        if self.senders:
            self.senders.is_abandoned.set()
            self.senders.stop()
        for node in self.nodes:
            node.thaw()
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.stop()
            if node.process.poll() is None:
                node.kill()
        for proxy in (proxy for links in self.links for proxy in links):
            proxy.close()
        self.judge.__exit__()
        self.proxies.close()
        self.pair.close()


def clock_library():
    """libfaketime, as its package brings it, if it can set the clock of a program here."""
    for place in map(pathlib.Path, sys.path):
        for library in place.glob("libfaketime/vendor/libfaketime/src/libfaketime.so.1"):
            shown = subprocess.run(["date", "+%s"], env={"LD_PRELOAD": str(library), "FAKETIME": "+600", "PATH": "/usr/bin:/bin"}, capture_output=True, text=True)
            if shown.stdout.strip().isdigit() and int(shown.stdout) > time.time() + 500:
                return str(library)
    return None
