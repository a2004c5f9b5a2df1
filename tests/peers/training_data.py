"""Loads what `gradus export` writes with the packages of those who read it: training data with `datasets` (TRL's loader), ATIF with the
models of `harbor` (which forbid unknown keys), Parquet with `pandas` and `duckdb`. And `gradus traces` reads Parquet that pandas wrote. Run by
run.py in an environment that has them.

  python training_data.py GRADUS

Exits with 1 and a line for each thing that is wrong.
"""
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import duckdb
import pandas
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
    return ran.stdout


def check_tables(folder, tables):
    """The tables join, and hold the same as our own lines, for pandas as for DuckDB."""
    lines = [json.loads(line) for line in (folder / "own.jsonl").read_text().splitlines()]
    frames = {name: pandas.read_parquet(tables / f"{name}.parquet") for name in ("trajectories", "steps", "verdicts")}
    steps = [(line["trajectory_id"], step["index"], step["tool"], step["thought"], step["is_error"]) for line in lines for step in line["steps"]]
    got = frames["steps"][["trajectory_id", "step_index", "tool", "thought", "is_error"]]
    found = [] if [tuple(None if value != value else value for value in row) for row in got.itertuples(index=False)] == steps else ["parquet: other steps for pandas"]
    if list(frames["trajectories"]["query"]) != [line["query"] for line in lines]:
        found.append("parquet: other requests for pandas")
    starts = list(frames["trajectories"]["start_time"])
    if starts != [pandas.Timestamp(line["start"]).floor("us") for line in lines]:
        found.append(f"parquet: other times for pandas: {starts[:2]}")
    wrong = sum(verdict["score"] is not None and verdict["score"] < 0.5 for line in lines for verdict in line["verdicts"] if verdict["step_index"])
    joined = duckdb.sql(f"SELECT count(*) FROM '{tables}/verdicts.parquet' v JOIN '{tables}/steps.parquet' s USING (trajectory_id, step_index) WHERE v.score < 0.5").fetchall()[0][0]
    # The thought before an answer is judged, and is no row of the table of steps.
    rows = {(line["trajectory_id"], step["index"]) for line in lines for step in line["steps"]}
    thoughts = sum(v["score"] is not None and v["score"] < 0.5 and (line["trajectory_id"], v["step_index"]) not in rows for line in lines for v in line["verdicts"] if v["step_index"])
    return found if joined == wrong - thoughts and joined > 0 else [*found, f"parquet: {joined} wrong steps for DuckDB instead of {wrong - thoughts}"]


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
        tables = folder / "tables"
        run(gradus, folder, "export", "--state-dir", "state", "--format", "jsonl", "--out", "own.jsonl")
        run(gradus, folder, "export", "--state-dir", "state", "--format", "parquet", "--out", str(tables))
        found += check_tables(folder, tables)
        # A table of spans as Phoenix's client gives it, saved by pandas.
        csv = ROOT / "fixtures" / "imports" / "phoenix" / "spans.csv"
        pandas.read_csv(csv, dtype=str).to_parquet(folder / "spans.parquet")
        read = [[json.loads(line)["steps"] for line in io.StringIO(run(gradus, folder, "traces", "--format", "jsonl", str(path)))] for path in (csv, folder / "spans.parquet")]
        if read[0] != read[1] or not read[0]:
            found.append("parquet: a table of spans is read otherwise than the same as CSV")
    for line in found[:20]:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
