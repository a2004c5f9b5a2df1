"""Grades traces on a Spark cluster. Needs PySpark 3.5 or newer and PyArrow, and this package on every worker.

`grade` brings the rows of a trace together and runs one `gradus` process for each partition (`gradus.grade_batches`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from gradus._batches import RECORD_COLUMN, VERDICT_ROW_COLUMNS, VerdictRow, grade_batches
from gradus._binary import PathLike
from gradus._otlp import split_otlp

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

#: Columns that may say which rows belong together, the first that exists is taken. `group_id` is that of our archives.
KEY_COLUMNS = ("group_id", "trace_id", "context.trace_id", "traceId", "TraceId")

#: The schema of what `grade` returns.
VERDICT_SCHEMA = (
    "trace_id string, trajectory_id string, step_index int, evaluator string, outcome string, label string, score double, "
    "explanation string, reason string, rule string, judge string, span_ids array<string>, cost_usd double, cached boolean"
)

#: The judge that costs nothing.
OFFLINE = "offline"

_ROWS_PER_BATCH = 1000


def split_records(df: "DataFrame", record: str = RECORD_COLUMN) -> "DataFrame":
    """Splits a column of OTLP exports (protobuf or JSON) by trace: columns `trace_id` and `record`."""

    def split(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow

        for batch in batches:
            parts = [part for value in batch.column(batch.schema.get_field_index(record)).to_pylist() if value is not None for part in split_otlp(value)]
            yield pyarrow.RecordBatch.from_arrays([pyarrow.array([trace for trace, _ in parts], pyarrow.string()), pyarrow.array([data for _, data in parts], pyarrow.binary())], names=["trace_id", RECORD_COLUMN])

    return df.select(_column(record)).mapInArrow(split, "trace_id string, record binary")


def grade(
    df: "DataFrame",
    *,
    key: Optional[str] = None,
    record: Optional[str] = None,
    partitions: Optional[int] = None,
    judge: Union[str, Sequence[str]] = OFFLINE,
    evaluators: Union[str, Iterable[str], None] = None,
    rubrics: Union[PathLike, Iterable[PathLike], None] = None,
    tools: Optional[PathLike] = None,
    base_url: Optional[str] = None,
    shared: Optional[PathLike] = None,
    concurrency: Optional[int] = None,
    max_cost: Optional[float] = None,
    max_calls: Optional[int] = None,
    options: Sequence[str] = (),
    environment: Optional[Mapping[str, str]] = None,
) -> "DataFrame":
    """Grades the traces of a table. The result has one row for each verdict (`VERDICT_SCHEMA`).

    Rows are brought together by `key`, the column of the trace id. Where one request is spread over several traces,
    name a column that is the same in all of them, such as the session.

    A model as the judge needs `shared`, a folder that every worker mounts: Spark repeats tasks that fail, and the folder
    keeps it from paying twice. Paths are those of the workers, and so are keys of judges (`spark.executorEnv`).
    """
    column = key or next((name for name in KEY_COLUMNS if name in df.columns), None)
    if column is None or column not in df.columns:
        wanted = repr(key) if key else f"for trace ids ({', '.join(KEY_COLUMNS)})"
        raise ValueError(f"there is no column {wanted}; the table has {', '.join(df.columns)}\nhint: name it with key=, or split OTLP exports with gradus.spark.split_records")
    judges = [judge] if isinstance(judge, str) else list(judge)
    if shared is None and any(one != OFFLINE for one in judges):
        raise ValueError("a model as the judge needs shared=FOLDER, a folder that every worker mounts: without it Spark would pay again for tasks that it repeats")
    settings: Any = {
        "key": column, "record": record, "judge": judges, "evaluators": _words(evaluators), "rubrics": _words(rubrics), "tools": tools, "base_url": base_url, "shared": shared,
        "concurrency": concurrency, "max_cost": max_cost, "max_calls": max_calls, "options": list(options), "environment": environment,
    }  # fmt: skip

    def grade_partition(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        rows: List[VerdictRow] = []
        for row in grade_batches(batches, **settings):
            rows.append(row)
            if len(rows) == _ROWS_PER_BATCH:
                yield _record_batch(rows)
                rows = []
        if rows:
            yield _record_batch(rows)

    together = df.repartition(_column(column)) if partitions is None else df.repartition(partitions, _column(column))
    return together.sortWithinPartitions(_column(column)).mapInArrow(grade_partition, VERDICT_SCHEMA)


def _column(name: str) -> str:
    """A name with dots is one column, not a field of a struct."""
    return f"`{name}`"


def _words(given: Any) -> Any:
    """Iterators cannot be sent to workers."""
    return given if given is None or isinstance(given, str) or hasattr(given, "__fspath__") else list(given)


def _record_batch(rows: "List[VerdictRow]") -> "pyarrow.RecordBatch":
    import pyarrow

    types = {"step_index": pyarrow.int32(), "score": pyarrow.float64(), "cost_usd": pyarrow.float64(), "cached": pyarrow.bool_(), "span_ids": pyarrow.list_(pyarrow.string())}
    schema = pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in VERDICT_ROW_COLUMNS])
    return pyarrow.RecordBatch.from_pylist(rows, schema=schema)
