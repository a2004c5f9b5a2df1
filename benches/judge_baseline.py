#!/usr/bin/env python3
"""What `llm_classify` of arize-phoenix-evals costs a row: a thought-to-tool judge at an OpenAI-compatible endpoint.

  judge_baseline.py --setup --base-url http://127.0.0.1:PORT/v1 --rows 2000

Judges synthetic rows (the same ones every time, each distinct) and prints one JSON object with the CPU time a row of
the `llm_classify` call alone: imports, the making of the rows and of the model object are left out. The call has about
150 ms of CPU and a second of waiting at its end whatever the number of rows, so take 1000 or more. What the package
prints goes to stderr. `--setup` first makes a virtual environment below the cache folder (GRADUS_TEST_CACHE) and goes
on in it. It is the yardstick for judging, not a part of the product.
"""
import argparse
import contextlib
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import time
import venv

CACHE = pathlib.Path(os.environ.get("GRADUS_TEST_CACHE") or pathlib.Path.home() / ".cache" / "gradus")
# 2.13.0 is the last version with `llm_classify`; the others are the newest that it took when this was written.
PACKAGES = ["arize-phoenix-evals==2.13.0", "openai==3.49.0", "pandas==3.1.1", "httpx2==2.16.0", "pydantic==2.14.3"]

RAILS = ["correct", "incorrect"]
TEMPLATE = """\
You are reviewing one step of an assistant that works with tools. Before it acts, the assistant writes down what it
thinks; then it names a tool and the arguments for it. Decide whether the action follows from the thought.

[BEGIN DATA]
************
[Question of the user]: {original_question}
************
[Thought]: {thought}
************
[Tool chosen]: {tool_call}
[Arguments]: {action_input}
************
[Tools on offer]:
{tool_definitions}
************
[END DATA]

The step is "correct" when the tool does what the thought sets out to do, it is one of the tools on offer, and the
arguments carry the values that the thought and the question give. It is "incorrect" when another tool would serve the
thought better, when the tool does not exist, or when an argument is missing, invented or at odds with the thought.
Judge this step only: whether the thought itself was wise does not matter here.

Answer in this form:
EXPLANATION: the reasons, step by step, without naming the verdict first
LABEL: one word, "correct" or "incorrect"
"""
TOOLS = [("search_issues", "Find issues of a repository by text.", ["repository", "query"]),
         ("read_file", "Return a file of a repository.", ["repository", "path"]),
         ("close_issue", "Close an issue and leave a comment.", ["repository", "number"])]
DEFINITIONS = "\n".join(f"- {name}({', '.join(arguments)}): {text}" for name, text, arguments in TOOLS)


def make_rows(count):
    rows = []
    for i in range(count):
        tool, _, arguments = TOOLS[i % len(TOOLS)]
        subject = f"octo-demo/service-{i % 97}"
        rows.append({
            "original_question": f"What became of request {i} about the slow login in {subject}?",
            "thought": f"Request {i} concerns {subject}, so I need {tool} with the {arguments[1]} that the user means.",
            "tool_call": tool,
            "action_input": json.dumps({arguments[0]: subject, arguments[1]: f"slow login {i}"}),
            "tool_definitions": DEFINITIONS,
        })
    return rows


def set_up():
    """Makes the virtual environment unless it is there with these versions, and runs this script again in it."""
    folder = CACHE / "judge-baseline"
    python, stamp, wanted = folder / "bin" / "python", folder / "ready", "\n".join(PACKAGES)
    if not (stamp.exists() and stamp.read_text() == wanted):
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, stdout=sys.stderr)
        stamp.write_text(wanted)
    os.execv(python, [str(python), os.path.abspath(__file__), *(a for a in sys.argv[1:] if a != "--setup")])


def cpu_seconds():
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


# What was tried, with the limiter lifted, on two shared cores with replies at once: least and median ms of CPU a row in
# 3-14 runs of 600-2000 rows each.
#   in flight       text (default)  functions   rows/s at most
#    20 (default)   2.8  3.3        2.6  3.1     59   the least CPU; 5 and 10 (2.7  3.2, 2.9  3.3) are no better
#    50             3.5  3.7        3.5  3.8    139
#    60             2.7  3.5        3.2  3.8    162
#   100             3.6  4.4        3.5  4.6    227   the most rows a second
#   200             3.9  5.0        4.4  4.5    199
#   400             4.5  4.8        4.4  5.5    189
# - Text and functions differ by less than the noise; in instructions (cachegrind, 20 in flight) functions takes 5 %
#   more. Replies after 50 ms change little: text 2.7  3.4 at 20, 3.7  4.4 at 100.
# - Below 100 in flight the executor holds it back: once a second it fills a queue up to three rows per worker.
# - The progress bar, `include_prompt`, `include_response` and a list for a data frame: no difference above the noise.
# - The limiter as it comes (one run each): 7.9 at 20 (12.5 rows/s), 13.7 at 100 (16 rows/s).
# - `run_sync` takes 1.8  2.0, but one request at a time: no use with a model that takes a second.
# - The package offers no choice of HTTP client. Patched in: aiohttp 2.4  2.5 at 20, 2.0  2.0 at 100; uvloop 2.9 at 20.
def run(options):
    import importlib.metadata
    import pandas
    from phoenix.evals import OpenAIModel, llm_classify

    # The limiter is a token bucket of `initial_rate_limit` requests a second, 10 by default; a million never runs dry.
    limit = {"initial_rate_limit": 1_000_000} if options.limiter == "lifted" else {}
    model = OpenAIModel(model="gpt-4o", base_url=options.base_url, api_key="none", **limit)
    frame = pandas.DataFrame(make_rows(options.rows))
    wall, cpu = time.monotonic(), cpu_seconds()
    with contextlib.redirect_stdout(sys.stderr):
        judged = llm_classify(
            data=frame, model=model, template=TEMPLATE, rails=RAILS, provide_explanation=True,
            use_function_calling_if_available=options.mode == "functions", concurrency=options.concurrency,
            run_sync=False, progress_bar_format=None)
    wall, cpu = time.monotonic() - wall, cpu_seconds() - cpu
    versions = {name: importlib.metadata.version(name) for name in ("arize-phoenix-evals", "openai", "pandas")}
    return {
        "rows": options.rows, "judged": int(judged["label"].isin(RAILS).sum()), "wall_s": round(wall, 3),
        "cpu_s": round(cpu, 3), "cpu_ms_per_row": round(cpu * 1e3 / options.rows, 3),
        "rows_per_s": round(options.rows / wall, 1),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "versions": {"python": platform.python_version(), **versions},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True, help="the endpoint, with /v1")
    parser.add_argument("--rows", type=int, default=2000, help="rows to judge")
    parser.add_argument("--concurrency", type=int, default=20, help="requests in flight")
    parser.add_argument("--limiter", choices=["lifted", "default"], default="lifted", help="its rate limiter")
    parser.add_argument("--mode", choices=["text", "functions"], default="text", help="how the label is asked for")
    parser.add_argument("--api", choices=["legacy"], default="legacy", help="legacy: llm_classify")
    parser.add_argument("--setup", action="store_true", help="make the virtual environment first and run in it")
    options = parser.parse_args()
    if options.setup:
        set_up()
    print(json.dumps(run(options)))


if __name__ == "__main__":
    main()
