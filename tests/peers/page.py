#!/usr/bin/env python3
"""The page in a real browser: Chromium, driven by Playwright, against a real `gradus serve` with traces in it.

  tests/peers/page.py GRADUS
  tests/peers/page.py GRADUS --screenshots FOLDER     every page, light and dark, wide and narrow

What is tried is in page_browser.py, page_every.py, page_runs.py, page_sessions.py, page_versions.py and page_review.py. run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import page_world
from collector import RUNS_WITHIN_S, Server, checked, clean_environment, free_ports
from github_clients import npm_folder
from run import HERE, NotInstalled, finish, python_for, run_checks

PACKAGES = ["playwright==1.65.0"]
AXE = {"axe-core": "4.14.0"}
# Each in a browser of its own; one of the page_*.py has a function of this name.
CHECKS = ["the_whole_way", "from_the_overview_to_the_guilty_step", "from_a_list_to_the_guilty_step", "keys_and_labels", "enter_chooses_nothing", "two_runs", "late_in_the_second_trajectory", "a_whole_verdict_names_its_steps", "rubrics_alerts_server", "live_update", "harm", "long_text", "found_where_it_is_folded", "spans", "without_script", "accessible", "fits_the_width", "three_labels", "long_names", "five_long_texts", "keys_go_on", "a_list_that_grows", "read_in_seconds", "a_crashed_run", "agents_and_parallel_calls", "a_model_call_as_chat", "two_thousand_steps", "a_session", "failure_and_worst_example", "version_against_version", "lists_are_sorted_and_exported", "outcome_first", "filters_apply", "overview_keeps_up", "local_times", "targets_for_fingers", "review_of_a_group", "a_queue_with_undo", "a_label_that_fails_keeps_what_was_typed", "one_failure_group", "a_rubric_on_many", "on_paper", "sessions_in_a_list"]
SETTINGS = """
[[alert]]
name = "tool choice"
when = "thought_to_tool < 0.95 over 7d, at least 5 steps"

[eval]
rubrics = ["helpful.md"]

[[rule]]
project = "graded"
judge = "openai:strict"
base_url = "%s/v1"
evaluators = ["helpful"]

[[rule]]
name = "everything"
evaluators = ["query_to_thought", "thought_to_tool", "sequence_optimality", "call_validity"]
"""
# With three labels, on a scale of its own.
HELPFUL = """+++
name = "helpful"
title = "Helpful"
about = "How far does the thought help?"
applies_to = "step"
requires = ["thought"]

[labels]
good = 5
fair = 3
bad = 1
+++
Is this thought "good", "fair" or "bad"?

{thought}
"""


def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        raise NotInstalled("there is no chromium; Debian has it as a package")
    return found


@contextlib.contextmanager
def world(gradus):
    """A server with something to look at: its address, and the ids of some traces."""
    with tempfile.TemporaryDirectory() as folder, page_world.strict_judge() as model:
        (pathlib.Path(folder) / "helpful.md").write_text(HELPFUL)
        server = Server(gradus, folder, *free_ports(2), settings=SETTINGS % model.url)
        try:
            url = f"http://127.0.0.1:{server.http_port}"
            ids = page_world.fill(url)
            wait_for_grading(server, lambda: server.json("/api/v1/metrics?evaluator=helpful")["items"])
            page_world.runs(gradus, url, server.data)
            yield url, ids
        finally:
            server.stop()


@contextlib.contextmanager
def demo_world(gradus):
    """A server over what `gradus demo` keeps, with two more runs over it."""
    with tempfile.TemporaryDirectory() as folder:
        data = pathlib.Path(folder) / "data"
        report = pathlib.Path(folder) / "demo.html"
        made = subprocess.run([gradus, "demo", "--keep", data, "--html", report], env=clean_environment(), capture_output=True, text=True, timeout=RUNS_WITHIN_S)
        if made.returncode != 0:
            raise RuntimeError(f"gradus demo: {made.stderr.strip()[-500:]}")
        server = Server(gradus, folder, *free_ports(2))
        try:
            url = f"http://127.0.0.1:{server.http_port}"
            wait_for_grading(server)
            page_world.runs(gradus, url, server.data, "gradus-demo")
            yield url, {"report": str(report)}
        finally:
            server.stop()


def wait_for_grading(server, is_judged=lambda: True):
    """Until nothing waits to be assembled, and models have judged; given up when nothing moves any more."""
    last, since = None, time.monotonic()
    while (now := due_count(server)) != 0 or not is_judged():
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > RUNS_WITHIN_S:
            raise RuntimeError(f"the traces were not graded: {now} wait, for {RUNS_WITHIN_S} s; {server.tail()}")
        time.sleep(0.1)


def due_count(server):
    lines = server.get("/metrics")[1].decode().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith("gradus_traces_due ")), None)


def browse(url, ids, what, *more):
    script = HERE / "page_browser.py"
    given = json.dumps({"url": url, "ids": ids, "chromium": chromium(), "axe": str(npm_folder("page-axe", AXE) / "node_modules/axe-core/axe.min.js")})
    python = python_for("page", PACKAGES)
    # Every wait in the browser has its own bound; this one ends a browser that hangs.
    ran = subprocess.run([python, script, given, what, *more], env=clean_environment(), capture_output=True, text=True, timeout=3 * RUNS_WITHIN_S)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-25:]


class Worlds:
    """One server for most checks and one for the way through a demo, started when everything that they need is there."""

    def __init__(self, gradus):
        self.gradus, self.stack, self.started = gradus, contextlib.ExitStack(), {}

    @checked
    def check(self, what):
        chromium()
        python_for("page", PACKAGES)
        npm_folder("page-axe", AXE)
        make = demo_world if what in ("the_whole_way", "outcome_first", "on_paper") else world
        if make not in self.started:
            self.started[make] = self.stack.enter_context(make(self.gradus))
        return browse(*self.started[make], what)


def main():
    gradus = os.path.abspath(sys.argv[1])
    if "--screenshots" in sys.argv:
        folder = pathlib.Path(sys.argv[sys.argv.index("--screenshots") + 1]).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with world(gradus) as (url, ids):
            sys.exit("\n".join(browse(url, ids, "screenshots", str(folder))) or 0)
    wanted = [name for name in CHECKS if len(sys.argv) < 3 or name in sys.argv[2:]]
    worlds = Worlds(gradus)
    with worlds.stack:
        counts = run_checks({f"page {name}": functools.partial(worlds.check, name) for name in wanted})
    finish(*counts)


if __name__ == "__main__":
    main()
