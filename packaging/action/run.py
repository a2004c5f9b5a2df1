"""Runs `gradus eval` or `gradus experiment` with reports in every form, and writes the step summary and the outputs. The
exit code is decided later, after the comment and the artifact."""
import json
import os
import pathlib
import secrets
import subprocess
import sys

from plan import read_arguments, read_sources
from runner import print_command, read_input, run_step, write_output

VERDICTS = {0: "pass", 3: "fail", 4: "nothing", 6: "incomplete"}
# GitHub refuses larger summaries.
MAX_SUMMARY_BYTES = 1_000_000


def print_guarded(text):
    """Text of traces must not become a workflow command: GitHub reads lines that begin with `::`."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}\n{text}\n::{token}::", flush=True)


def baseline_arguments(baseline, fail_on, path, new_path):
    """Compares with the baseline that is there, and writes the one for the next run."""
    arguments = []
    if baseline != "none" and pathlib.Path(path).is_file():
        arguments += ["--baseline", path]
        arguments += ["--fail-on", "regression"] if fail_on == "regression" else []
    elif baseline == "cache":
        print_command("notice", "there is no cached baseline of the base branch yet: nothing is compared")
    return arguments + (["--save-baseline", str(new_path)] if baseline == "cache" else [])


def read_run_id(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))["summary"]["run_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def write_step_summary(markdown, verdict):
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        text = markdown.read_bytes()[:MAX_SUMMARY_BYTES].decode("utf-8", "ignore")
    except OSError:
        text = f"## Gradus evaluation\n\nNo report was written: {verdict}. The log has the reason.\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write(text + "\n")


def main():
    folder, path = pathlib.Path(os.environ["REPORT_FOLDER"]), os.environ.get("BASELINE_PATH", "")
    files = {"--html": folder / "report.html", "--junit": folder / "junit.xml", "--markdown": folder / "summary.md", "--json": folder / "summary.json"}
    for file in files.values():
        # A report of an earlier run must not pass for this one.
        file.unlink(missing_ok=True)
    new_baseline = folder / "gradus.baseline"
    new_baseline.unlink(missing_ok=True)
    command = [os.environ["GRADUS_PROGRAM"], read_input("COMMAND"), *read_arguments()]
    command += [text for option, file in files.items() for text in (option, str(file))]
    command += baseline_arguments(read_input("BASELINE"), read_input("FAIL_ON"), path, new_baseline)
    # Behind `--` a source is never taken for an option.
    ran = subprocess.run([*command, "--quiet", "--", *read_sources()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print_guarded(ran.stdout.decode("utf-8", "replace"))
    for file in files.values():
        # Gradus opens its outputs before it reads; without a result they stay empty.
        if file.is_file() and file.stat().st_size == 0:
            file.unlink()
    code = ran.returncode if ran.returncode >= 0 else 128 - ran.returncode
    verdict = VERDICTS.get(code, "error")
    saved = new_baseline.is_file()
    if saved and read_input("BASELINE") == "cache":
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        os.replace(new_baseline, path)
    write_step_summary(files["--markdown"], verdict)
    write_output("exit-code", code)
    write_output("verdict", verdict)
    write_output("run-id", read_run_id(files["--json"]))
    write_output("baseline-saved", str(saved).lower())
    for name, option in {"report-path": "--html", "junit-path": "--junit", "summary-path": "--json"}.items():
        write_output(name, files[option] if files[option].is_file() else "")
    return 0


if __name__ == "__main__":
    sys.exit(run_step(main))
