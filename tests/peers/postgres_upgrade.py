"""Servers beside a newer version on one PostgreSQL. The newer one is played by what it leaves in the database: a schema with a later number, in which
every table has another column. Used by postgres_nodes.py."""
from postgres_cluster import wait_for
from postgres_servers import Node, agent_run, request_of, trace_ids

DATABASE = "upgraded"
# A migration that only adds; servers that know an earlier number than `oldest_compatible` are excluded by it.
ADD_COLUMNS = """
DO $$ DECLARE name TEXT; BEGIN
    FOR name IN SELECT relname FROM pg_class WHERE relnamespace = 'gradus'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition LOOP
        EXECUTE format('ALTER TABLE gradus.%I ADD COLUMN added_later TEXT NOT NULL DEFAULT ''later''', name);
    END LOOP;
END $$;
UPDATE gradus.store_format SET schema_version = 1000
"""


def check_upgrade(gradus, folder, cluster, complete):
    """A server that runs while the schema changes goes on, and one that starts afterwards works beside it. `complete` tells whether a server
    lists all runs of a project."""
    nodes = [Node(gradus, cluster.create_database(DATABASE), folder, "before")]
    ids = trace_ids(30, 11)
    try:
        send_all(nodes, ids[:10])
        cluster.sql(ADD_COLUMNS, DATABASE)
        send_all(nodes, ids[10:20])
        nodes.append(Node(gradus, nodes[0].address, folder, "after"))
        send_all(nodes, ids[20:])
        for node in nodes:
            wait_for(lambda: complete(node, ids, 5, "upgraded"), f"{node.folder.name} to list all runs beside a newer schema")
    finally:
        for node in nodes:
            node.stop()
    found = [line for node in nodes for line in node.read_log().splitlines() if " ERROR " in line or " WARN " in line]
    assert not found, f"logged beside a newer schema: {found[:5]}"


def send_all(nodes, ids):
    for number, trace in enumerate(ids):
        assert nodes[number % len(nodes)].send(request_of(agent_run(trace), "upgraded")), "a run was refused beside a newer schema"
