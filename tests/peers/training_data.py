"""Loads the training data and the interchange format that `gradus export` writes with the packages of those who read them: `datasets` (TRL's
loader) and `harbor` (the models of ATIF, which forbid unknown keys). Run by run.py in an environment that has them.

  python training_data.py GRADUS

Exits with 1 and a line for each thing that is wrong.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from datasets import load_dataset
from harbor.models.trajectories import Trajectory

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Columns that TRL's trainers look for (trl 1.16, data_utils.py).
TRL_COLUMNS = {
    "sft": {"messages", "tools"},
    "dpo": {"prompt", "chosen", "rejected", "tools"},
    "kto": {"prompt", "completion", "label", "tools"},
    "stepwise": {"prompt", "completions", "labels"},
}


def run(gradus, folder, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("GRADUS_", "OPENAI_", "ANTHROPIC_"))}
    ran = subprocess.run([gradus, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    if ran.returncode != 0:
        sys.exit(f"gradus {' '.join(arguments)}: exit code {ran.returncode}: {ran.stderr.strip()[-600:]}")


def check_roles(name, messages):
    roles = {message["role"] for message in messages}
    return [] if roles <= {"system", "user", "assistant", "tool"} else [f"{name}: roles {roles}"]


def check_trl_file(format_name, path, cache):
    """Loads a file as TRL would, and looks at its columns and at a row."""
    rows = load_dataset("json", data_files=str(path), split="train", cache_dir=cache)
    missing = TRL_COLUMNS[format_name] - set(rows.column_names)
    if missing:
        return [f"{format_name}: no column {', '.join(sorted(missing))}"]
    found = []
    for row in rows:
        for column in ("messages", "prompt", "chosen", "rejected", "completion"):
            if isinstance(row.get(column), list):
                found += check_roles(f"{format_name}.{column}", row[column])
        if "tools" in rows.column_names and row["tools"] is not None and not isinstance(json.loads(row["tools"]), list):
            found.append(f"{format_name}: tools are no JSON list")
        if format_name == "stepwise" and len(row["completions"]) != len(row["labels"]):
            found.append("stepwise: as many labels as completions")
        if format_name == "dpo" and row["chosen"] == row["rejected"]:
            found.append("dpo: both sides are the same")
    return found


def main():
    gradus = sys.argv[1]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        # Runs of agents with known mistakes, several on each task.
        run(gradus, folder, "demo", "--keep", "state")
        for format_name in TRL_COLUMNS:
            out = folder / f"{format_name}.jsonl"
            run(gradus, folder, "export", "--state-dir", "state", "--format", format_name, "--out", str(out))
            found += check_trl_file(format_name, out, folder / "cache")
        for version in ("1.7", "1.8"):
            out = folder / "atif.jsonl"
            run(gradus, folder, "export", "--state-dir", "state", "--format", "atif", "--atif-version", version, "--out", str(out))
            for line in out.read_text().splitlines():
                try:
                    Trajectory.model_validate_json(line)
                except ValueError as error:
                    found.append(f"atif {version}: {error}")
                    break
    for line in found[:20]:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
