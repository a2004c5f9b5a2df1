#!/usr/bin/env python3
"""docs/grafana/gradus-dashboard.json against a real `gradus serve` and a real Prometheus (Debian's package).

  tests/peers/dashboard.py GRADUS

  - names: every metric and label of the dashboard is in an answer of `/metrics`, and every metric there has a help text;
  - expressions: promtool accepts them, and a Prometheus that scrapes the server has an answer for each of them;
  - bounds: sixty more projects add no more series than the largest ones have.

run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import page_world
from collector import Server, checked, clean_environment, free_ports
from page import wait_for_grading
from run import CACHE, HERE, NotInstalled, finish, run_checks

DASHBOARD = HERE.parents[1] / "docs" / "grafana" / "gradus-dashboard.json"
ANSWERS_WITHIN_S = 300
# A judge with a known price, so that there is spending; a rule that fires; and one that rules alone answer.
SETTINGS = """
[[alert]]
name = "calls"
when = "call_validity < 1 over 7d, at least 5 steps"

[[rule]]
project = "shop"
judge = "openai:gpt-4o"
base_url = "%s/v1"
evaluators = ["core"]
daily_budget_usd = 5

[[rule]]
name = "everything"
"""
# Words of PromQL that are no labels.
GROUPING = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"\b(gradus_\w+)(?:\{([^}]*)\})?")


def prometheus_folder():
    """The programs of Debian's package, without installing it."""
    folder = CACHE / "peer-prometheus"
    if not (folder / "usr/bin/promtool").exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise NotInstalled("there is no prometheus, and no apt-get to get it with")
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True)
        packages = sorted(folder.glob("prometheus_*.deb"))
        if got.returncode != 0 or not packages:
            raise NotInstalled((got.stderr.strip().splitlines() or ["apt-get failed"])[-1])
        subprocess.run(["dpkg-deb", "-x", packages[-1], folder], check=True)
    return folder / "usr/bin"


@contextlib.contextmanager
def world(gradus):
    """A server with graded traces, spending and a firing alert."""
    with tempfile.TemporaryDirectory() as folder, page_world.strict_judge() as model:
        server = Server(gradus, folder, *free_ports(2), settings=SETTINGS % model.url)
        try:
            # Within the last hour, which the metrics are about.
            page_world.fill(f"http://127.0.0.1:{server.http_port}", hours=0.5)
            wait_for_grading(server)
            wait_for(lambda: 'gradus_alert_firing{rule="calls"} 1' in scrape(server), "the alert did not fire")
            wait_for(lambda: server.json("/api/v1/metrics?project=shop")["items"], "nothing was scored")
            yield server, pathlib.Path(folder)
        finally:
            server.stop()


def wait_for(holds, message):
    end = time.monotonic() + ANSWERS_WITHIN_S
    while not (found := holds()):
        if time.monotonic() > end:
            raise RuntimeError(message)
        time.sleep(0.3)
    return found


def scrape(server):
    return server.get("/metrics")[1].decode()


def expressions():
    """Title and expression of every target, with the variables of the dashboard filled in as Grafana does for all projects."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"].replace("$project", ".*")


def known_series(text):
    """Labels by the name of a metric, of the series in an answer."""
    series = {}
    for line in text.splitlines():
        if found := re.match(r"(gradus_\w+)(?:\{(.*)\})? ", line):
            series.setdefault(found.group(1), set()).update(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', found.group(2) or ""))
    return series


def check_names(text):
    series, found = known_series(text), []
    variables = [one["query"]["query"] for one in json.loads(DASHBOARD.read_text())["templating"]["list"] if one["type"] == "query"]
    for title, expression in [*expressions(), *(("variable", re.sub(r"label_values\((\w+), (\w+)\)", r"sum by (\2) (\1)", one)) for one in variables)]:
        metrics = SELECTOR.findall(expression)
        found += [] if metrics else [f"{title}: {expression} uses no metric"]
        used = {label.strip() for part in GROUPING.findall(expression) for label in part.split(",")}
        for name, matchers in metrics:
            labels = used | set(re.findall(r"(\w+)\s*[=!]~?", matchers or ""))
            if name not in series:
                found.append(f"{title}: {name} is not in /metrics")
            elif labels - series[name]:
                found.append(f"{title}: {name} has the labels {sorted(series[name])}, not {sorted(labels - series[name])}")
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            name = SELECTOR.search(target["expr"]).group(1)
            unknown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) - series.get(name, set())
            found += [f"{panel['title']}: the legend names {sorted(unknown)}"] if unknown else []
    return found


def check_help(text):
    """Every metric has a help text of its own words."""
    helped = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    named = set(re.findall(r"^# TYPE (\S+) ", text, re.M))
    short = [name for name in sorted(named) if len(helped.get(name, "").split()) < 3]
    return [f"{name}: the help text is {helped.get(name)!r}" for name in short]


def check_bounds(server):
    """However many projects there are, the series stay few."""
    url = f"http://127.0.0.1:{server.http_port}"
    for number in range(60):
        _, body = page_world.trace(f"many-{number}", "agent", "1", "gpt-4o", *page_world.GOOD[0], time.time_ns() - 5_000_000_000)
        page_world.send(url, body)
    wait_for_grading(server)
    text = scrape(server)
    projects = {project for line in text.splitlines() for project in re.findall(r'project="([^"]*)"', line)}
    return [] if len(projects) <= 40 else [f"{len(projects)} projects are labels"]


def promtool(*words, **options):
    ran = subprocess.run([prometheus_folder() / "promtool", *words], capture_output=True, text=True, **options)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-20:]


def check_with_prometheus(server, folder):
    rules = [{"record": f"dashboard:{at}", "expr": expression} for at, (_, expression) in enumerate(expressions())]
    (folder / "rules.json").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    found = promtool("check", "rules", folder / "rules.json")
    port = free_ports(1)[0]
    config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "gradus", "static_configs": [{"targets": [f"127.0.0.1:{server.http_port}"]}]}]}
    (folder / "prometheus.json").write_text(json.dumps(config))
    words = [prometheus_folder() / "prometheus", f"--config.file={folder / 'prometheus.json'}", f"--storage.tsdb.path={folder / 'prometheus'}", f"--web.listen-address=127.0.0.1:{port}"]
    with open(folder / "prometheus.log", "wb") as log, subprocess.Popen(words, stdout=log, stderr=log, env=clean_environment()) as process:
        try:
            for title, expression in expressions():
                ask = functools.partial(query, port, expression)
                # Rates need two scrapes.
                try:
                    wait_for(lambda: ask()[0], title)
                except RuntimeError:
                    found.append(f"{title}: no answer to {expression}: {ask()[1]}")
            targets = fetch(port, "/api/v1/targets")["data"]["activeTargets"]
            found += [f"scraping failed: {one['lastError']}" for one in targets if one["health"] != "up"]
        finally:
            process.terminate()
    return found


def fetch(port, path):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


def query(port, expression):
    """Whether there is an answer, and what it was."""
    try:
        result = fetch(port, "/api/v1/query?" + urllib.parse.urlencode({"query": expression}))["data"]["result"]
    except OSError as error:
        return False, str(error)
    return bool(result), result


@checked
def check_dashboard(gradus):
    prometheus_folder()
    with world(gradus) as (server, folder):
        text = scrape(server)
        found = check_names(text) + check_help(text)
        found += check_with_prometheus(server, folder)
        return found + check_bounds(server)


def main():
    gradus = os.path.abspath(sys.argv[1])
    finish(*run_checks({"dashboard": functools.partial(check_dashboard, gradus)}))


if __name__ == "__main__":
    main()
