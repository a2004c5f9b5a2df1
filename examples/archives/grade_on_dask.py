"""Grades an archive of OTLP exports with Dask. Each line of the files is an export of spans in JSON.

  python grade_on_dask.py FILES... --out verdicts/ [--judge openai:gpt-4o --shared /mnt/shared/gradus]

On a cluster, install `gradus` on every node, and name a folder in --shared that all nodes mount.
"""
import argparse

import dask.bag
import pandas
import pyarrow

import gradus

TYPES = {"step_index": "Int32", "score": "float64", "cost_usd": "float64", "cached": "boolean", "span_ids": pandas.ArrowDtype(pyarrow.list_(pyarrow.string()))}
EMPTY = pandas.DataFrame({name: pandas.Series(dtype=TYPES.get(name, "string")) for name in gradus.VERDICT_ROW_COLUMNS})


def split_export(text):
    """One row for each trace of an export."""
    return [{"trace_id": trace, "record": record.decode()} for trace, record in gradus.split_otlp(text)]


def grade_partition(frame, settings):
    """Grades the traces of one partition with one `gradus` process."""
    rows = gradus.grade_batches([frame.sort_values("trace_id")], key="trace_id", **settings)
    return pandas.DataFrame(list(rows), columns=EMPTY.columns).astype(EMPTY.dtypes)


def grade(lines, partitions, **settings):
    traces = lines.map(split_export).flatten().to_dataframe(meta={"trace_id": "string", "record": "string"})
    return traces.shuffle("trace_id", npartitions=partitions).map_partitions(grade_partition, settings, meta=EMPTY)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--judge", default="offline")
    parser.add_argument("--base-url")
    parser.add_argument("--shared")
    options = parser.parse_args()
    verdicts = grade(dask.bag.read_text(options.files), options.partitions, judge=options.judge, base_url=options.base_url, shared=options.shared)
    verdicts.to_parquet(options.out)


if __name__ == "__main__":
    main()
