"""Grades an archive of OTLP exports on Ray. Each line of the files is an export (protobuf or JSON) of spans.

  python grade_on_ray.py FILES... --out verdicts/ [--judge openai:gpt-4o --shared /mnt/shared/gradus]

On a cluster, install `gradus` on every node, and name a folder in --shared that all nodes mount.
"""
import argparse

import pyarrow
import ray

import gradus

SCHEMA = pyarrow.schema([
    ("trace_id", pyarrow.string()), ("trajectory_id", pyarrow.string()), ("step_index", pyarrow.int32()), ("evaluator", pyarrow.string()), ("outcome", pyarrow.string()),
    ("label", pyarrow.string()), ("score", pyarrow.float64()), ("explanation", pyarrow.string()), ("reason", pyarrow.string()), ("rule", pyarrow.string()),
    ("judge", pyarrow.string()), ("span_ids", pyarrow.list_(pyarrow.string())), ("cost_usd", pyarrow.float64()), ("cached", pyarrow.bool_()),
])  # fmt: skip


def split_export(row):
    """One row for each trace of an export."""
    return [{"trace_id": trace, "record": record} for trace, record in gradus.split_otlp(row["text"])]


class TraceGrader:
    """Grades the traces of one partition with one `gradus` process."""

    def __init__(self, settings):
        self.settings = settings

    def __call__(self, table):
        rows = gradus.grade_batches([table.sort_by("trace_id")], key="trace_id", **self.settings)
        return pyarrow.Table.from_pylist(list(rows), schema=SCHEMA)


def grade(dataset, partitions, **settings):
    traces = dataset.flat_map(split_export).repartition(partitions, keys=["trace_id"])
    return traces.map_batches(TraceGrader(settings), batch_size=None, batch_format="pyarrow")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--judge", default="offline")
    parser.add_argument("--base-url")
    parser.add_argument("--shared")
    options = parser.parse_args()
    verdicts = grade(ray.data.read_text(options.files), options.partitions, judge=options.judge, base_url=options.base_url, shared=options.shared)
    verdicts.write_parquet(options.out)


if __name__ == "__main__":
    main()
