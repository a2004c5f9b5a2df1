"""`gradus.grade_batches`: grades records as they come, with one `gradus` process for an iterator.

It is what a task of Spark, Ray, Dask or Beam calls for its part of an archive. Blocks of records go to the program's
standard input, verdicts come back from its standard output; neither is collected.
"""

from __future__ import annotations

import collections
import datetime
import decimal
import json
import os
import subprocess
import threading
from typing import IO, Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from gradus._binary import GradusError, PathLike, find_gradus_bin
from gradus._otlp import is_json, unpack_record

#: The columns of a verdict row, in order.
VERDICT_ROW_COLUMNS = ("trace_id", "trajectory_id", "step_index", "evaluator", "outcome", "label", "score", "explanation", "reason", "rule", "judge", "span_ids", "cost_usd", "cached")

#: One verdict: a value for each of `VERDICT_ROW_COLUMNS`.
VerdictRow = Dict[str, Any]

#: The column of OTLP records in a table, unless another one is named.
RECORD_COLUMN = "record"

#: Names the traces that a row belongs to: a column, or a function of the row or record.
GroupKey = Union[str, Callable[[Any], Any]]

_CHUNK_BYTES = 256 << 10
_KEPT_MESSAGES = 50


def grade_batches(
    batches: Iterable[Any],
    *,
    key: Optional[GroupKey] = None,
    record: Optional[str] = None,
    judge: Union[str, Sequence[str]] = "offline",
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
) -> Iterator[VerdictRow]:
    """Grades what an iterator gives, and yields one row for each verdict as soon as it is there.

    A batch is an Arrow table or record batch, a data frame of pandas or polars, a list of rows, a row (a mapping), or an
    OTLP record (bytes or text). Rows have a column `record` with OTLP records (`record` names another one), or are spans
    of one of the tables that Gradus reads.

    Rows with the same `key` must follow each other: they are graded as soon as the key changes. Without a key everything
    is one group, which is graded at the end of the iterator; traces can then be in any order.

    `shared` is a folder that all processes see. A question that one of them has paid for is not asked again, and
    `concurrency`, `max_cost` and `max_calls` hold for all processes together. Questions beyond a limit give rows with the
    outcome `failed`; a group that cannot be read gives a row with the outcome `unreadable`.
    """
    arguments = ["eval", "-", "--stream", "-q"]
    for one in [judge] if isinstance(judge, str) else judge:
        arguments += ["--judge", one]
    if evaluators is not None:
        arguments += ["--evaluators", evaluators if isinstance(evaluators, str) else ",".join(evaluators)]
    for path in [rubrics] if isinstance(rubrics, (str, os.PathLike)) else rubrics or ():
        arguments += ["--rubrics", os.fspath(path)]
    values: List[Tuple[str, Any]] = [("--tools", tools), ("--base-url", base_url), ("--shared", shared), ("--concurrency", concurrency), ("--max-cost", max_cost), ("--max-calls", max_calls)]
    for option, value in values:
        if value is not None:
            arguments += [option, str(value)]
    return _grade([*arguments, *options], batches, key, record, environment)


def _grade(arguments: Sequence[str], batches: Iterable[Any], key: Optional[GroupKey], record: Optional[str], environment: Optional[Mapping[str, str]]) -> Iterator[VerdictRow]:
    """A generator, so that nothing starts before the first row is asked for: engines make iterators they never use."""
    process: Optional[_GradingProcess] = None
    try:
        for name, chunks in _group(batches, key, record):
            process = process or _GradingProcess(arguments, environment)
            process.begin_block(name)
            for chunk in chunks:
                process.write_chunk(chunk)
                yield from process.take_rows()
            process.end_block()
            yield from process.take_rows()
        if process is not None:
            yield from process.finish()
    finally:
        if process is not None:
            process.close()


class _GradingProcess:
    """A running `gradus eval --stream`. Two threads empty its outputs, so that it never waits for this process while
    this process waits for it; the iterator of the engine stays in the thread of its caller."""

    def __init__(self, arguments: Sequence[str], environment: Optional[Mapping[str, str]]) -> None:
        command = [find_gradus_bin(), *arguments]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=None if environment is None else {**os.environ, **environment})
        except OSError as error:
            raise GradusError(f"{command[0]}: cannot be run: {error}") from error
        # Bounded by what the program has read: the caller takes all rows before it writes the next chunk.
        self._lines: Deque[bytes] = collections.deque()
        self._messages: Deque[str] = collections.deque(maxlen=_KEPT_MESSAGES)
        self._arrived = threading.Condition()
        self._is_ended = False
        self._threads = [threading.Thread(target=self._read_rows, daemon=True), threading.Thread(target=self._read_messages, daemon=True)]
        for thread in self._threads:
            thread.start()

    def begin_block(self, name: str) -> None:
        self._write(b"begin " + name.replace("\n", " ").encode("utf-8")[:1024] + b"\n")

    def write_chunk(self, chunk: bytes) -> None:
        self._write(b"%d\n" % len(chunk))
        self._write(chunk)

    def end_block(self) -> None:
        self._write(b"end\n")
        self._flush()

    def take_rows(self) -> Iterator[VerdictRow]:
        """The rows that have arrived."""
        while self._lines:
            yield _row(self._lines.popleft())

    def finish(self) -> Iterator[VerdictRow]:
        """The rows that are still to come. Raises if the program failed."""
        try:
            _stream(self._process.stdin).close()
        except BrokenPipeError:
            pass
        while True:
            with self._arrived:
                while not self._lines and not self._is_ended:
                    self._arrived.wait()
            if not self._lines:
                break
            yield from self.take_rows()
        self._raise_failure()

    def close(self) -> None:
        """Ends the program if it still runs: the caller wants no more rows, or failed itself."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            try:
                _stream(stream).close()
            except BrokenPipeError:
                pass

    def _write(self, data: bytes) -> None:
        try:
            _stream(self._process.stdin).write(data)
        except BrokenPipeError:
            self._raise_failure()

    def _flush(self) -> None:
        try:
            _stream(self._process.stdin).flush()
        except BrokenPipeError:
            self._raise_failure()

    def _raise_failure(self) -> None:
        code = self._process.wait()
        for thread in self._threads:
            thread.join()
        if code != 0 or not self._is_ended:
            raise GradusError("\n".join(self._messages) or f"gradus eval --stream ended with exit code {code}", exit_code=code)

    def _read_rows(self) -> None:
        for line in _stream(self._process.stdout):
            with self._arrived:
                self._lines.append(line)
                self._arrived.notify()
        with self._arrived:
            self._is_ended = True
            self._arrived.notify()

    def _read_messages(self) -> None:
        for line in _stream(self._process.stderr):
            self._messages.append(line.decode("utf-8", "replace").rstrip())


def _stream(stream: Optional[IO[bytes]]) -> IO[bytes]:
    assert stream is not None
    return stream


def _row(line: bytes) -> VerdictRow:
    found = json.loads(line)
    if found.get("outcome") == "unreadable":
        return {**dict.fromkeys(VERDICT_ROW_COLUMNS), "trace_id": found.get("block") or None, "outcome": "unreadable", "reason": found.get("reason"), "span_ids": [], "cached": False}
    return {name: found.get(name) for name in VERDICT_ROW_COLUMNS}


def _group(batches: Iterable[Any], key: Optional[GroupKey], record: Optional[str]) -> Iterator[Tuple[str, Iterator[bytes]]]:
    """Records that follow each other and have the same key, as chunks of bytes."""
    items = iter(_items(batches))
    ahead: Deque[Any] = collections.deque(maxlen=1)

    def chunks_of(current: str) -> Iterator[bytes]:
        parts: List[bytes] = []
        size, form = 0, ""
        while ahead:
            data, found = _encode(ahead[0], record)
            if form and found != form:
                raise TypeError("records of one group are all protobuf or all JSON")
            form = found
            parts.append(data)
            size += len(data)
            if size >= _CHUNK_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
            ahead.clear()
            for item in items:
                ahead.append(item)
                break
            if ahead and _key_of(ahead[0], key) != current:
                break
        if parts:
            yield b"".join(parts)

    for item in items:
        ahead.append(item)
        break
    while ahead:
        current = _key_of(ahead[0], key)
        yield current, chunks_of(current)


def _key_of(item: Any, key: Optional[GroupKey]) -> str:
    if key is None:
        return ""
    if callable(key):
        return str(key(item))
    if not isinstance(item, Mapping) or key not in item:
        raise KeyError(f"there is no column {key!r}" if isinstance(item, Mapping) else f"key={key!r} names a column; for records give a function")
    return str(item[key])


def _items(batches: Iterable[Any]) -> Iterator[Any]:
    """The rows and records of all batches."""
    for batch in batches:
        if isinstance(batch, (bytes, bytearray, memoryview, str, Mapping)):
            yield batch
        elif hasattr(batch, "to_pylist"):
            yield from _arrow_rows(batch)
        elif hasattr(batch, "to_dicts"):
            yield from batch.to_dicts()
        elif hasattr(batch, "to_dict") and hasattr(batch, "columns"):
            yield from batch.to_dict(orient="records")
        elif isinstance(batch, Iterable):
            yield from _items(batch)
        else:
            raise TypeError(f"a batch is a table, a list of rows, a row or an OTLP record, not {type(batch).__name__}")


def _arrow_rows(batch: Any) -> List[Any]:
    try:
        found: List[Any] = batch.to_pylist(maps_as_pydicts="lossy")
    except TypeError:
        # pyarrow before 13.
        found = batch.to_pylist()
    return found


def _encode(item: Any, record: Optional[str]) -> Tuple[bytes, str]:
    """The bytes of a record, and which form they have."""
    if isinstance(item, Mapping):
        column = record or (RECORD_COLUMN if RECORD_COLUMN in item else None)
        if column is not None:
            if column not in item:
                raise KeyError(f"there is no column {column!r}")
            return _encode_record(item[column])
        row = {str(name): _without_nulls(value) for name, value in item.items() if not _is_null(value)}
        return json.dumps(row, default=_plain).encode("utf-8") + b"\n", "json"
    return _encode_record(item)


def _encode_record(value: Any) -> Tuple[bytes, str]:
    if isinstance(value, str):
        return value.strip().encode("utf-8") + b"\n", "json"
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = unpack_record(value)
        # With its length in front, a message is never taken for JSON, and exports of spans and logs stay apart.
        return (data.strip() + b"\n", "json") if is_json(data) else (len(data).to_bytes(4, "big") + data, "protobuf")
    if isinstance(value, Mapping):
        return json.dumps(value, default=_plain).encode("utf-8") + b"\n", "json"
    raise TypeError(f"an OTLP record is bytes, text or a mapping, not {type(value).__name__}")


def _is_null(value: Any) -> bool:
    """None, and the values that pandas has for a missing one: they are not equal to themselves."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return False


def _without_nulls(value: Any) -> Any:
    """Tables have one schema for all rows, so a nested value has a null for each field of any other row."""
    if isinstance(value, Mapping):
        return {str(name): _without_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, (list, tuple)):
        return [_without_nulls(field) for field in value]
    return value


def _plain(value: Any) -> Any:
    """What JSON has no type for."""
    if isinstance(value, (datetime.datetime, datetime.date)):
        if isinstance(value, datetime.datetime) and value.tzinfo is None:
            value = value.replace(tzinfo=datetime.timezone.utc)
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "replace")
    if hasattr(value, "tolist"):
        # Numbers and arrays of numpy.
        return value.tolist()
    raise TypeError(f"a cell of type {type(value).__name__} is no JSON")
