"""A store moved between engines with `gradus store copy`, and a database backed up with `pg_dump`. Used by postgres_nodes.py."""
import signal
import subprocess

from postgres_cluster import wait_for


def check_moving(gradus, run, folder, cluster, address, environment):
    """To SQLite and back, interrupted; the copies have what the first one has."""
    expected = run(gradus, folder, address, "store", "check").stdout
    wait_for(lambda: cluster.sql(locks_of(address)) == "0", "servers to be gone")
    copied = run(gradus, folder, "", "store", "copy", address, "sqlite:copied")
    assert copied.returncode == 0 and "copied and compared" in copied.stdout, copied.stdout + copied.stderr
    same_traces(expected, run(gradus, folder, "", "store", "check", "--data", "copied"))
    back = cluster.create_database("copied_back")
    # Killed after the first table that has rows; it may be done by then.
    command = [gradus, "store", "copy", "sqlite:copied", back]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as killed:
        assert killed.stderr.readline(), "it says nothing of its progress"
        killed.send_signal(signal.SIGKILL)
    # PostgreSQL notices that its client is gone, and ends the lock of the copy.
    wait_for(lambda: cluster.sql(locks_of(back)) == "0", "the killed copy to be gone")
    if killed.returncode == -signal.SIGKILL and cluster.sql("SELECT to_regclass('gradus.store_copy') IS NOT NULL", "copied_back") == "t":
        refused = run(gradus, folder, back, "store", "check")
        assert refused.returncode == 2 and "is not complete" in refused.stderr, refused.stdout + refused.stderr
        # A key in it would be in the way of a copied one.
        refused = run(gradus, folder, back, "keys", "add", "early")
        assert refused.returncode == 2 and "is not complete" in refused.stderr, refused.stdout + refused.stderr
        again = run(gradus, folder, "", "store", "copy", "sqlite:copied", back)
        assert again.returncode == 0, again.stderr
    same_traces(expected, run(gradus, folder, back, "store", "check"))
    refused = run(gradus, folder, "", "store", "copy", "sqlite:copied", back)
    assert refused.returncode == 2 and "empty" in refused.stderr, refused.stdout + refused.stderr


def locks_of(address):
    """Counts what servers and copies of a database hold."""
    name = address.rsplit("/", 1)[1]
    return f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = '{name}')"


def same_traces(expected, checked):
    assert checked.returncode == 0 and checked.stdout == expected, f"{expected} against {checked.stdout}{checked.stderr}"


def check_backup(gradus, run, folder, cluster, address):
    """A dump, made while nobody stops anything, is a whole store."""
    expected = run(gradus, folder, address, "store", "check").stdout
    dump = cluster.folder / "gradus.dump"
    cluster.run("pg_dump", "--format=custom", f"--file={dump}", address)
    restored = cluster.create_database("restored")
    cluster.run("pg_restore", "--no-owner", f"--dbname={restored}", dump)
    same_traces(expected, run(gradus, folder, restored, "store", "check"))
