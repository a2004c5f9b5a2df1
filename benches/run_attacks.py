#!/usr/bin/env python3
"""Attacks `gradus serve` while well-behaved clients use it, and writes benches/results/attacks.json.

  benches/run_attacks.py GRADUS [--seconds 20] [--only NAME,...] [--mode keys|open|both] [--json FILE] [--smoke]
  benches/run_attacks.py --list

A sender (20 small traces a second), a reader and a prober of /healthz run all the time. First nothing else does, then each
attack alone, then all at once, each attacker from an address of its own (127.0.0.20 and up). Then the attacks end: memory has
to go back and grading to catch up; then SIGTERM comes while all attacks run again, and after a restart everything that was
acknowledged has to be there. `keys`: the server wants keys, and attackers that send or read have their own. `open`: nobody
has one; there only the baseline and all attacks at once are measured.

Attackers run only when a processor is idle, since elsewhere they have processors of their own. The server may use 4 GiB of address
space, so that a machine survives the measurement. A server that ends is started again; one that ends again and again gets a
new store. Exit code 1 where a bar is missed, or no answer was given.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import sys
import tempfile
import time

from attacks import catalogue, own_server, report, worker
from attacks.phases import Soak
from attacks.server import SupervisedServer
from attacks.target import Sizes
from machine import machine
from run_load import raise_open_files

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPT = pathlib.Path(__file__).resolve()


@dataclasses.dataclass
class Plan:
    """How long and how large."""

    sizes: Sizes
    attack_s: float
    baseline_s: float
    together_s: float
    settle_s: float
    recovery_s: float
    stop_after_s: float
    seed_traces: int
    large_spans: int
    # Attacks of one family together, where there is no time for each alone.
    by_family: bool = False
    # What the process may still hold some time after the attacks.
    rest_mib: int = 256

    @staticmethod
    def full(seconds):
        return Plan(Sizes(), seconds, seconds, 3 * seconds, 20, 180, min(seconds, 10), 20_000, 10_000)

    @staticmethod
    def smoke():
        return Plan(Sizes.smoke(), 2.5, 2.5, 7, 0.3, 40, 3, 1_500, 3_000, by_family=True)


def run_mode(mode, options, plan, attackers, folder, only_together):
    names = list(attackers)
    folder = pathlib.Path(folder) / mode
    folder.mkdir()
    server = SupervisedServer(options.gradus, folder, mode == "keys", address_space_mb=options.address_space_mb)
    soak = Soak(server, plan, attackers)
    found = {"mode": mode, "phases": soak.phases}
    try:
        print_phase(soak.measure("baseline", [], plan.baseline_s, plan.settle_s))
        for label, group in catalogue.groups(names, plan.by_family).items() if not only_together else ():
            print_phase(soak.measure(label, group, plan.attack_s, plan.settle_s))
        if len(names) > 1 or only_together:
            print_phase(soak.measure("all together", names, plan.together_s, plan.settle_s))
        found["recovery"] = soak.recover()
        found["stop"], found["restart"] = soak.stop_under_attack(names)
    finally:
        soak.close()
    return found


def print_phase(phase):
    """One line while it goes on; the table comes at the end."""
    sender, healthz = phase["sender"], phase["healthz"]
    outcomes = "; ".join(f"{name}: {', '.join(f'{key} {value}' for key, value in {**results['outcomes'], **results}.items() if not isinstance(value, dict))}" for name, results in phase["attackers"].items())
    print(f"  {phase['phase']}: sender p99 {sender.get('p99_ms')} ms, refused {sender['refused'] or 0}; healthz p99 {healthz.get('p99_ms')} ms; peak {phase['memory_mib']['peak']} MiB"
          f"{'' if phase['survived'] else '; CRASHED ' + str(len(phase['crashes'])) + ' times'} [{outcomes[:500]}]", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradus", nargs="?", help="the binary")
    parser.add_argument("--seconds", type=float, default=20, help="how long each attack runs alone; all together run three times as long")
    parser.add_argument("--only", help="names of attacks, with commas between; all without it")
    parser.add_argument("--mode", choices=["keys", "open", "both"], help="both without it; keys with --smoke")
    parser.add_argument("--json", help="the results file, if not benches/results/attacks.json")
    parser.add_argument("--smoke", action="store_true", help="small sizes, attacks by family, about two minutes; writes no file without --json")
    parser.add_argument("--address-space-mb", type=int, default=4096, help="the server's limit (RLIMIT_AS); 0 for none")
    parser.add_argument("--list", action="store_true", help="print the names of all attacks")
    parser.add_argument("--worker", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker.run(options.worker[0], json.loads(options.worker[1]))
    if options.list:
        print("\n".join([*catalogue.ATTACKS, *catalogue.OWN_SERVER]))
        return None
    if not options.gradus:
        parser.error("name the binary")
    wanted = options.only.split(",") if options.only else [*catalogue.ATTACKS, *catalogue.OWN_SERVER]
    if unknown := [name for name in wanted if name not in catalogue.ATTACKS and name not in catalogue.OWN_SERVER]:
        parser.error(f"no such attack: {', '.join(unknown)}; --list names them")
    raise_open_files(20_000)
    mode = options.mode or ("keys" if options.smoke else "both")
    plan = Plan.smoke() if options.smoke else Plan.full(options.seconds)
    names = [name for name in catalogue.ATTACKS if name in wanted]
    began = time.monotonic()
    results = {"machine": machine(), "attack_seconds": plan.attack_s, "rest_mib": plan.rest_mib, "sizes": dataclasses.asdict(plan.sizes), "modes": [], "own_servers": {}}
    # All of them at once: preparing takes a while and has to end before latencies are measured.
    attackers = {name: worker.Attacker(SCRIPT, name, plan.sizes) for name in names}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        retention = own_server.FutureRetention(options.gradus, folder) if "future_retention" in wanted else None
        if retention:
            results["version"] = retention.server.version()
            retention.begin()
        if "poison_restart" in wanted:
            # In its full size always: a smaller one fits into the memory that there is. Its bars have no latencies, so it runs while attackers prepare.
            results["own_servers"]["poison_restart"] = own_server.poison_restart(options.gradus, folder, Sizes().nodes)
        for attacker in attackers.values():
            attacker.wait_until_ready()
        for one in (["keys", "open"] if mode == "both" else [mode]) if names else []:
            print(f"mode {one}:", flush=True)
            results["modes"].append(run_mode(one, options, plan, attackers, folder, one == "open" and mode == "both"))
        if retention:
            results["own_servers"]["future_retention"] = retention.end()
    for attacker in attackers.values():
        attacker.close()
    results["seconds"] = round(time.monotonic() - began)
    bars = list(report.check(results))
    results["missed"] = [text for text, holds in bars if not holds]
    path = options.json or (None if options.smoke or options.only else ROOT / "benches" / "results" / "attacks.json")
    if path:
        pathlib.Path(path).write_text(report.render_results(results))
    for mode in results["modes"]:
        print("\n".join(["", *report.table(mode)]))
    print(f"\n{len(bars) - len(results['missed'])} of {len(bars)} bars hold after {results['seconds']} s")
    for text in results["missed"]:
        print(f"MISSED {text}")
    sys.stdout.flush()
    # Threads of clients may still wait for an answer.
    os._exit(bool(results["missed"]))


if __name__ == "__main__":
    main()
