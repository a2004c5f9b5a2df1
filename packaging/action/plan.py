"""Checks the inputs before anything runs, and decides where reports and the baseline are kept."""
import hashlib
import os
import pathlib
import re
import shlex
import tempfile

from runner import BadInput, read_input, run_step, write_output

COMMANDS = ("eval", "experiment")
FAIL_ON = ("gate", "regression", "nothing")


def read_arguments():
    """The input `args` as a shell would split it. Nothing is expanded and nothing is run."""
    try:
        return shlex.split(read_input("ARGS"))
    except ValueError as error:
        raise BadInput(f"args: {error}: {read_input('ARGS')}") from error


def read_sources():
    """One a line, so that names with spaces need no quotes."""
    found = [line.strip() for line in read_input("SOURCE").splitlines() if line.strip()]
    if not found:
        raise BadInput("source: nothing is named")
    return found


def check_name(name):
    """Goes into a hidden marker, a cache key and the name of an artifact."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
        raise BadInput(f"name: {name!r}: use at most 64 letters, digits, '-', '_' and '.'")
    return name


def cache_names(name, version, text, branch, commit):
    """Baselines of other arguments or versions do not compare, so they have other keys."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    prefix = f"gradus-baseline-{name}-{version}-{digest}-{re.sub(r'[^A-Za-z0-9_.-]', '_', branch)}-"
    return prefix, f"{prefix}{commit}"


def main():
    for name, allowed in (("COMMAND", COMMANDS), ("FAIL_ON", FAIL_ON)):
        if read_input(name) not in allowed:
            raise BadInput(f"{name.lower().replace('_', '-')}: {read_input(name)!r} is none of {', '.join(allowed)}")
    name, baseline = check_name(read_input("NAME")), read_input("BASELINE")
    arguments, sources = read_arguments(), read_sources()
    if read_input("COMMAND") == "experiment" and len(sources) > 1:
        raise BadInput("source: an experiment has one dataset")
    if read_input("FAIL_ON") == "regression" and baseline == "none":
        raise BadInput("fail-on: regression needs a baseline")
    if baseline not in ("none", "cache") and not pathlib.Path(baseline).is_file():
        raise BadInput(f"baseline: {baseline}: no such file\nhint: write one with --save-baseline on the main branch, or use `cache`")
    folder = pathlib.Path(os.environ.get("RUNNER_TEMP") or tempfile.gettempdir()) / f"gradus-{name}"
    folder.mkdir(parents=True, exist_ok=True)
    write_output("report-folder", folder)
    write_output("artifact", check_name(read_input("ARTIFACT") or name))
    # A pull request compares with its base branch; a push with the commits before it on the same branch.
    branch = os.environ.get("GITHUB_BASE_REF") or os.environ.get("GITHUB_REF_NAME") or "main"
    text = "\0".join([read_input("COMMAND"), *arguments, "--", *sources])
    prefix, key = cache_names(name, os.environ.get("GRADUS_VERSION", ""), text, branch, os.environ.get("GITHUB_SHA", "none"))
    write_output("cache-prefix", prefix)
    write_output("cache-key", key)
    cached = folder.parent / f"gradus-baseline-{name}" / "gradus.baseline"
    write_output("baseline-path", cached if baseline == "cache" else "" if baseline == "none" else pathlib.Path(baseline).resolve())


if __name__ == "__main__":
    run_step(main)
