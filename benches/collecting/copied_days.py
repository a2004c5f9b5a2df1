"""Makes a store on PostgreSQL with the traces of one day into one with the traces of many days, inside of the database.

Each of the spans that a server is sent is assembled and graded, which takes hours for 10,000,000 of them on two cores. So one
day is sent, and its rows are copied: as if the same traffic had arrived on each day before. Copies have ids, numbers, times,
sessions, partitions and rollups of their own. What stays that of the original: the ids of spans, and the texts in bodies and
verdicts, which name the trace that they were copied from.
"""
import concurrent.futures
import subprocess
import sys

DAY_NS = 86_400 * 10**9
# Between the numbers of trajectories of two days. Search results are listed by them, so earlier days need lower ones.
STRIDE = 10**7
# A check reads whole tables into memory.
MAX_CHECKED_SPANS = 1_000_000

TRACE_NUMBER, TRAJECTORY_NUMBER = "{name} - ({ago}::bigint << 32)", f"{{name}} - {{ago}} * {STRIDE}"
# What a copy has in columns of these names, `ago` days earlier. Other columns keep their values.
SHIFTED = {
    **dict.fromkeys(("start_ns", "end_ns", "arrived_ns", "first_arrived_ns", "judged_ns"), f"{{name}} - {{ago}} * {DAY_NS}"),
    **dict.fromkeys(("trace", "story"), TRACE_NUMBER),
    **dict.fromkeys(("trajectory", "rowid"), TRAJECTORY_NUMBER),
    "trace_id": "decode(md5(encode(trace_id, 'hex') || {ago}), 'hex')",
    "trajectory_id": "md5(left(trajectory_id, 32) || {ago}) || substr(trajectory_id, 33)",
    "session": "CASE session WHEN '' THEN '' ELSE session || '-{ago}' END",
}
# The tables, and what is shifted in one of them only.
TABLES = {
    "outcome": {}, "span": {}, "facet": {}, "words": {}, "block": {}, "trajectory": {"no": TRAJECTORY_NUMBER}, "trace": {"no": TRACE_NUMBER},
    "link": {"key": "key # {ago}"}, "failure": {}, "rollup": {"bucket": "bucket - {ago} * 288"},
    **dict.fromkeys(("rollup_long", "usage_long"), {"bucket": "bucket - {ago} * 24 / size"}),
}  # fmt: skip

# Sums that must agree, as pairs of queries.
AGREEING = [
    ("SELECT sum(traces) FROM project_count", "SELECT count(*) FROM trace"),
    ("SELECT sum(spans) FROM project_count", "SELECT count(*) FROM span"),
    ("SELECT sum(trajectories) FROM project_count", "SELECT count(*) FROM trajectory"),
    ("SELECT sum(spans) FROM trace", "SELECT count(*) FROM span"),
    ("SELECT sum(trajectories) FROM usage_long WHERE (size, project, kind) = (1, 0, 0)", "SELECT count(*) FROM trajectory"),
    ("SELECT sum(trajectories) FROM usage_long WHERE (size, kind) = (24, 0) AND project > 0", "SELECT count(*) FROM trajectory"),
    ("SELECT sum(scored + failed + not_applicable + abstained) FROM rollup WHERE tool = ''", "SELECT count(*) FROM outcome"),
    ("SELECT sum(scored + failed + not_applicable + abstained) FROM rollup_long WHERE (size, project, kind, tool) = (24, 0, 0, '')", "SELECT count(*) FROM outcome"),
    ("SELECT count(DISTINCT trace_id) FROM trace", "SELECT count(*) FROM trace"),
    ("SELECT count(*) FROM words", "SELECT count(*) FROM trajectory"),
]


def leave_room(cluster, database, days):
    """Before anything is sent: trajectories get numbers that have room for those of the days before."""
    cluster.sql(f"ALTER SEQUENCE gradus.trajectory_no_seq RESTART WITH {days * STRIDE}", database)


def copy_days(cluster, database, days):
    """Copies everything to each of `days - 1` days before. Everything that was sent must have started on one day in UTC, and no server
    may run."""
    sql = lambda text, seconds=3_600: cluster.sql(f"SET search_path = gradus; {text}", database, seconds=seconds)
    columns = {table: sql(f"SELECT column_name FROM information_schema.columns WHERE (table_schema, table_name) = ('gradus', '{table}')").split() for table in TABLES}
    sql("CREATE SCHEMA source; " + "; ".join(f"CREATE TABLE source.{table} AS TABLE {table}" for table in TABLES))
    sql(f"SELECT make_partitions(day - ago) FROM (SELECT DISTINCT no >> 32 AS day FROM trace) AS sent, generate_series(1, {days - 1}) AS ago")
    # An index of words is built in a fraction of the time in which it grows.
    index = sql("SELECT indexdef FROM pg_indexes WHERE indexname = 'words_by_text'")
    sql("DROP INDEX words_by_text")

    def copy_table(table):
        shifted = {**SHIFTED, **TABLES[table]}
        for ago in range(days - 1, 0, -1):
            values = [shifted.get(name, name).format(name=name, ago=ago) for name in columns[table]]
            # Without triggers: counting projects row by row in one transaction takes time that grows with its square.
            sql(f"SET session_replication_role = replica; INSERT INTO {table} ({', '.join(columns[table])}) SELECT {', '.join(values)} FROM source.{table}")
        print(f"  copied {table}", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(copy_table, TABLES))
    sql(f"UPDATE project_count SET traces = traces * {days}, spans = spans * {days}, trajectories = trajectories * {days}, bytes = bytes * {days}")
    sql(f"SET maintenance_work_mem = '1GB'; {index}")
    sql("DROP SCHEMA source CASCADE")
    cluster.run("vacuumdb", "-h", "127.0.0.1", "-p", cluster.port, "-U", "gradus", "-q", "-z", "-j", "2", database, seconds=3_600)
    cluster.sql("CHECKPOINT", database, seconds=3_600)


def check_copies(cluster, database, gradus):
    """Fails unless sums agree. A smaller store is also read by `gradus store check`. Returns the number of spans."""
    for left, right in AGREEING:
        found = [int(cluster.sql(f"SET search_path = gradus; {query}", database, seconds=3_600)) for query in (left, right)]
        if found[0] != found[1]:
            sys.exit(f"the copied store does not agree: {left} is {found[0]}, {right} is {found[1]}")
    spans = int(cluster.sql("SELECT count(*) FROM gradus.span", database, seconds=3_600))
    if spans <= MAX_CHECKED_SPANS:
        checked = subprocess.run([gradus, "store", "check", "--store", cluster.address(database)], capture_output=True, text=True)
        if checked.returncode != 0:
            sys.exit(f"the copied store is damaged: {(checked.stdout + checked.stderr)[-1_000:]}")
    return spans
