#!/usr/bin/env python3
"""Runs the tutorials and "CI in five minutes" as a reader would, and compares what is printed with what the page shows.

  tests/peers/tutorial.py GRADUS

Every `sh` block of the page runs in one shell, in an empty folder with the agent of the page; the `text` block behind it is what has
to be printed. `...` stands for any text, and on a line of its own for any lines.
"""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from run import OTEL, finish, python_for, run_checks

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial"
PAGES = {"tutorial, first wrong step": ("first-wrong-step.md", "agent.py"), "tutorial, second version": ("second-version.md", "shop_agent.py"), "tutorial, trust your judge": ("trust-your-judge.md", None), "CI in five minutes": ("../how-to/ci-in-five-minutes.md", None)}
END = "--- end of block"


def blocks(text):
    """The commands of the page, each with what it prints; `None` where the page does not say."""
    found = []
    for kind, body in re.findall(r"^```(sh|text)\n(.*?)^```$", text, re.S | re.M):
        if kind == "sh":
            found.append([body, None])
        else:
            found[-1][1] = body
    return found


def pattern(expected):
    def line_pattern(line):
        if line.strip() == "...":
            return r"(?:.*\n)*?"
        return ".*".join(re.escape(part) for part in line.split("...")) + r"\n"

    return re.compile("".join(line_pattern(line) for line in expected.splitlines()) + r"\Z")


def check_page(gradus, page, agent):
    python = python_for("tutorial", OTEL)
    with tempfile.TemporaryDirectory() as folder:
        if agent:
            shutil.copy(FOLDER / agent, folder)
        # `gradus` and `python3` are what the page calls them.
        programs = pathlib.Path(folder, "programs")
        programs.mkdir()
        (programs / "gradus").symlink_to(gradus)
        (programs / "python3").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        (programs / "python3").chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not re.match(r"(?i)GRADUS_|OTEL_|OPENAI_|ANTHROPIC_|.*_proxy$", name)}
        environment = {**kept, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": folder}
        steps = blocks((FOLDER / page).read_text())
        script = "".join(f"{command}echo '{END}'\n" for command, _ in steps)
        ran = subprocess.run(["sh"], input=script, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    printed = ran.stdout.split(f"{END}\n")
    found = [] if len(printed) == len(steps) + 1 else [f"it ended after {len(printed) - 1} of {len(steps)} blocks: {ran.stderr.strip()[-600:]}"]
    for (command, expected), output in zip(steps, printed):
        if expected is not None and not pattern(expected).match(output):
            found += [f"after: {command.strip()}", *(f"  expected  {line}" for line in expected.splitlines()), *(f"  printed   {line}" for line in output.splitlines())]
    return found


if __name__ == "__main__":
    gradus = os.path.abspath(sys.argv[1])
    finish(*run_checks({name: functools.partial(check_page, gradus, *files) for name, files in PAGES.items()}))
