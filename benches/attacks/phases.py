"""One server's way through the soak: baseline, each attack alone, all together, recovery, a stop under attack, a restart."""
import json
import os
import time

from machine import cpu_times, stolen_share

from .clients import PROJECT, Prober, Reader, Sender, TraceMaker
from .seed import fill


class Soak:
    """The server, the clients beside it, and the phases that were measured."""

    def __init__(self, server, plan, attackers):
        self.server, self.plan, self.attackers = server, plan, attackers
        self.phases, self.windows, self.acknowledged = [], [], {}
        # Stores that were set aside when `acknowledged` began.
        self.stores_forgotten = 0
        server.start() is not None or exit_with(server, "the server did not start")
        fill(server, plan.seed_traces, plan.large_spans)
        server.wait_for_grading(300)
        self.sender = Sender(server, TraceMaker())
        self.prober, self.reader = Prober(server), Reader(server, self.sender)

    def close(self):
        for client in (self.sender, self.prober, self.reader):
            client.done.set()
        self.server.kill()

    def measure(self, label, names, seconds, settle_s):
        """One phase with these attacks: what the clients saw, what the server used, what the attackers counted."""
        server, attackers = self.server, [self.attackers[name] for name in names]
        crashes, set_aside = len(server.crashes), server.stores_set_aside
        server.reset_peak()
        cpu, begin, times = server.cpu_s(), time.monotonic(), cpu_times()
        for attacker in attackers:
            attacker.begin(server)
        time.sleep(seconds)
        end = time.monotonic()
        load, rss, stolen = os.getloadavg()[0], server.memory_mib(), stolen_share(times, cpu_times())
        cpu = (server.cpu_s() - cpu) / (end - begin)
        counted = self.end_attacks(attackers)
        for client in (self.sender, self.prober, self.reader):
            client.wait_through(end)
        drained, drained_s = self.wait_for_grading(settle_s) if settle_s else (None, None)
        self.catch_up()
        # Before it is forgotten: a phase whose store was set aside must not count as one in which nothing was sent.
        grading = self.sender.grading(begin, end)
        self.forget_stores_set_aside()
        phase = {"phase": label, "seconds": round(end - begin, 1), "sender": self.sender.summary(begin, end), "healthz": self.prober.summary(begin, end),
                 "reader": self.reader.summary(begin, end), "grading": {**grading, "queue_empty": drained, "queue_empty_after_s": drained_s},
                 "memory_mib": {"peak": round(max(server.peak_mib, server.memory_mib("VmHWM"))), "at_end": round(rss), "after": round(server.memory_mib())},
                 "server_cores": round(cpu, 2), "load": round(load, 1), "stolen": stolen, "survived": len(server.crashes) == crashes,
                 "crashes": [f"status {crash['status']}: {crash['log'][-160:]}" for crash in server.crashes[crashes:]],
                 "store_set_aside": server.stores_set_aside > set_aside, "attackers": counted}
        self.phases.append(phase)
        self.windows.append((begin, end))
        return phase

    def wait_for_grading(self, within_s):
        """Whether the ready queue becomes empty. The sender pauses: it adds a trace every 50 ms, so the queue would never be."""
        self.sender.pause()
        try:
            return self.server.wait_for_grading(within_s)
        finally:
            self.sender.resume()

    def end_attacks(self, attackers):
        for attacker in attackers:
            attacker.stop()
        counted = {attacker.name: attacker.results() for attacker in attackers}
        for name, results in counted.items():
            self.acknowledged[name] = self.acknowledged.get(name, 0) + results["acknowledged_spans"]
        return counted

    def forget_stores_set_aside(self):
        """Where the supervisor moved a store away because the server could not live with it, what follows is held against the new one."""
        if self.server.stores_set_aside == self.stores_forgotten:
            return
        self.stores_forgotten = self.server.stores_set_aside
        self.acknowledged.clear()
        with self.sender.lock:
            self.sender.sent_at.clear()
            self.sender.span_ids.clear()
        fill(self.server, self.plan.seed_traces, self.plan.large_spans)

    def catch_up(self, pages=40):
        """Looks through the list for traces that were graded later than the reader's page reaches."""
        cursor = ""
        for _ in range(pages):
            with self.sender.lock:
                if self.sender.sent_at.keys() <= self.sender.graded_at.keys():
                    return
            page = self.server.try_json(f"/api/v1/traces?project={PROJECT}&limit=500{cursor}")
            if page is None:
                return
            self.reader.note_graded(page["items"])
            if not page["next_cursor"]:
                return
            cursor = f"&cursor={page['next_cursor']}"

    def recover(self):
        """After the attacks: does the queue drain, does memory go back?"""
        began, server = time.monotonic(), self.server
        drained, drained_s = self.wait_for_grading(self.plan.recovery_s)
        lowest = server.memory_mib()
        while time.monotonic() - began < self.plan.recovery_s and lowest > self.plan.rest_mib:
            time.sleep(0.5)
            lowest = min(lowest, server.memory_mib())
        self.catch_up()
        # What was graded later than its phase counts for it.
        for phase, (begin, end) in zip(self.phases, self.windows):
            later = self.sender.grading(begin, end)
            # Phases before a store was set aside keep what they had.
            if later["sent"]:
                phase["grading"].update(later)
        # A crash loop can end between phases, too. An empty new store has not recovered.
        is_same_store = server.stores_set_aside == self.stores_forgotten
        self.forget_stores_set_aside()
        return {"is_same_store": is_same_store, "queue_empty": drained, "queue_empty_after_s": drained_s, "memory_mib": round(lowest), "seconds": round(time.monotonic() - began, 1)}

    def stop_under_attack(self, names):
        """SIGTERM in the middle of it, then a start over the same store."""
        attackers = [self.attackers[name] for name in names]
        for attacker in attackers:
            attacker.begin(self.server)
        time.sleep(self.plan.stop_after_s)
        # What is sent while it stops may be answered or not; what was answered counts.
        status, took = self.server.stop()
        self.end_attacks(attackers)
        self.sender.done.set()
        self.reader.done.set()
        self.prober.done.set()
        time.sleep(0.5)
        crashes = len(self.server.crashes)
        started = self.server.start()
        drained, drained_s = self.server.wait_for_grading(self.plan.recovery_s)
        self.catch_up()
        missing = self.missing()
        restarted = {"start_s": started, "survived": len(self.server.crashes) == crashes, "queue_empty": drained, "queue_empty_after_s": drained_s, **missing}
        final_status, final_s = self.server.stop()
        return {"status": status, "seconds": took}, {**restarted, "stop_status": final_status, "stop_s": final_s, "store_check": self.server.check_store(), "stores_set_aside": self.server.stores_set_aside}

    def missing(self):
        """What was acknowledged and is not there: the sender's spans by trace, the attackers' by number."""
        if self.server.stores_set_aside > self.stores_forgotten:
            return {"lost": "not measured, since the store was set aside after a crash loop"}
        try:
            status, body = self.server.get(f"/api/v1/projects/{PROJECT}/spans?attributes=none", 300)
        except OSError as error:
            return {"lost": f"spans could not be read: {error}"}
        stored = {}
        for line in body.splitlines() if status == 200 else ():
            trace = json.loads(line)["trace_id"]
            stored[trace] = stored.get(trace, 0) + 1
        lost = sum(max(0, count - stored.get(trace, 0)) for trace, count in self.sender.span_ids.items())
        projects = (self.server.try_json("/api/v1/projects") or {}).get("items", [])
        spans = {project["name"]: project["spans"] for project in projects}
        short = {name: count - spans.get(f"attack-{name}", 0) for name, count in self.acknowledged.items() if count > spans.get(f"attack-{name}", 0)}
        return {"acknowledged_spans": sum(self.sender.span_ids.values()), "lost": lost, "attackers_acknowledged_spans": sum(self.acknowledged.values()), "attackers_lost": short}


def exit_with(server, message):
    raise SystemExit(f"{message}: {server.log_tail(500)}")
