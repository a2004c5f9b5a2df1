#!/usr/bin/env python3
"""Spans as a real Phoenix lists them and as `gradus_phoenix::span_view` does; and the spans that Phoenix's filters find
and those that `gradus_core::filter` finds. Both get the captures of real agents and spans made by hand.

  tests/peers/phoenix_parity.py VIEW [FOLDER...]

VIEW is the example binary (cargo build -p gradus-phoenix --example phoenix_view); folders of captures are those of
fixtures/captures unless some are named. Phoenix is installed below the cache folder when it is not there; if that
cannot be done, this is skipped with the reason, and with CI=true that is a failure.
"""
import gzip
import http.client
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import time

import phoenix_spans
from phoenix_filters import ACCEPTED, REFUSED

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))
from benches.collecting import servers  # noqa: E402

PROJECT = "parity"
JSON = {"content-type": "application/json"}


def ask(port, method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def prepare(view, folders, out):
    """All trace requests as plain protobuf, numbered in the order of their paths."""
    paths = []
    bodies = [path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.bin")) if not path.name.startswith("logs-")]
    for body in [*bodies, *phoenix_spans.requests()]:
        path = out / f"{len(paths):05d}.bin"
        path.write_bytes(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
        if path.read_bytes()[:1] == b"{":
            subprocess.run([view, "protobuf", path, path], check=True)
        paths.append(path)
    return paths


def send(server, paths):
    headers = {"content-type": "application/x-protobuf", "x-project-name": PROJECT}
    for path in paths:
        while (status := ask(server.port, "POST", "/v1/traces", path.read_bytes(), headers)[0]) == 503:
            time.sleep(0.5)
        if status != 200:
            sys.exit(f"Phoenix answered {status} to {path.name}")


def wait_for(server, count, within_s=900):
    end = time.monotonic() + within_s
    while (stored := server.stored()) < count:
        if time.monotonic() > end:
            sys.exit(f"Phoenix has stored {stored} of {count} spans after {within_s} s")
        time.sleep(0.5)


def listed(server):
    spans, cursor = {}, ""
    while cursor is not None:
        page = json.loads(server.get(f"/v1/projects/{PROJECT}/spans?limit=1000" + (f"&cursor={cursor}" if cursor else "")))
        for span in page["data"]:
            span.pop("id")
            spans[span["context"]["span_id"]] = span
        cursor = page["next_cursor"]
    return spans


def same(theirs, ours):
    """Equal, and of the same types."""
    return json.dumps(theirs, sort_keys=True) == json.dumps(ours, sort_keys=True)


def shortened(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 300 else text[:300] + "…"


def compare_spans(theirs, ours):
    found = [f"{span}: only in {'ours' if span in ours else 'Phoenix'}" for span in theirs.keys() ^ ours.keys()]
    for span in theirs.keys() & ours.keys():
        mine, their = dict(ours[span]), dict(theirs[span])
        pairs = [(f".{key}", mine.get(key), their.get(key)) for key in mine.keys() | their.keys() if key != "attributes"]
        mine, their = mine["attributes"], their["attributes"]
        pairs += [(f" {key}", mine.get(key), their.get(key)) for key in mine.keys() | their.keys()]
        found += [f"{span}{key}: {shortened(own)} instead of {shortened(other)}" for key, own, other in pairs if not same(other, own)]
    return sorted(found)


def annotations(spans):
    """Some on spans made by hand, with two identifiers on one, and on their traces."""
    def note(scope, number, name, label=None, score=None, explanation=None, identifier=""):
        made = phoenix_spans.span_id(number) if scope == "span" else phoenix_spans.trace_id(number)
        return {"scope": scope, "id": made.hex(), "name": name, "label": label, "score": score, "explanation": explanation, "identifier": identifier}

    return [note("span", 1, "quality", "good", 1.0, "Because it is."), note("span", 2, "quality", "bad", 0.0, "too long"),
            note("span", 3, "quality", "good", 0.5, identifier="v1"), note("span", 3, "quality", "bad", 0.25, identifier="v2"),
            note("span", 4, "quality", None, None, "nobody knows"), note("span", 5, "tone", "kind", 3.0), note("span", 1, "tone", "rude", 5.0),
            note("trace", 1, "task", "done", 1.0), note("trace", 2, "task", "failed", 0.0, "gave up", "v1")]


def annotate(server, notes):
    for note in notes:
        result = {key: note[key] for key in ("label", "score", "explanation")}
        body = {f"{note['scope']}_id": note["id"], "name": note["name"], "annotator_kind": "CODE", "result": result, "identifier": note["identifier"]}
        status, answer = ask(server.port, "POST", f"/v1/{note['scope']}_annotations?sync=true", json.dumps({"data": [body]}), JSON)
        if status != 200:
            sys.exit(f"Phoenix answered {status} to an annotation: {answer[:300]!r}")


def costs(server):
    """What Phoenix takes the costs of its spans for, by its own prices: they are nothing that a filter finds out."""
    database = sqlite3.connect(f"file:{server.data / 'phoenix.db'}?mode=ro", uri=True, timeout=30)
    found = {}
    for span, total, prompt, completion in database.execute("SELECT span_id, total_cost, prompt_cost, completion_cost FROM span_costs JOIN spans ON spans.id = span_rowid"):
        found[span] = {"total": total, "prompt": prompt, "completion": completion, "details": []}
    details = """SELECT span_id, token_type, is_prompt, span_cost_details.cost, span_cost_details.tokens, span_cost_details.cost_per_token
                 FROM span_cost_details JOIN span_costs ON span_costs.id = span_cost_id JOIN spans ON spans.id = span_rowid"""
    for span, token_type, is_prompt, *numbers in database.execute(details):
        found[span]["details"].append({"token_type": token_type, "is_prompt": bool(is_prompt), **dict(zip(("cost", "tokens", "cost_per_token"), numbers))})
    database.close()
    return found


def found_by_phoenix(server, text):
    """The ids of the spans that a filter finds, or why it is none."""
    query = {"filter": {"condition": text}, "select": {"name": {"key": "name"}}, "index": {"key": "context.span_id"}}
    body = json.dumps({"queries": [query], "limit": 1_000_000})
    status, answer = ask(server.port, "POST", f"/v1/spans?project_name={PROJECT}", body, {**JSON, "accept": "application/json"})
    if status != 200:
        return f"{status} {answer.decode(errors='replace')[:200]}"
    table = json.loads(re.search(rb'\{"schema".*\}', answer, re.DOTALL)[0])
    return {row["0_context.span_id"] for row in table["data"]}


def compare_filters(server, view, paths, spans, folder):
    cases = folder / "cases.json"
    notes = annotations(spans)
    annotate(server, notes)
    filters = [*ACCEPTED, *REFUSED]
    server.settle()
    cases.write_text(json.dumps({"filters": filters, "annotations": notes, "costs": costs(server)}))
    ran = subprocess.run([view, "where", cases, *paths], capture_output=True, text=True, check=True)
    different, matched = [], 0
    for line in ran.stdout.splitlines():
        ours = json.loads(line)
        text = ours["filter"]
        theirs = found_by_phoenix(server, text)
        own = set(ours["spans"]) if "spans" in ours else ours["error"]
        if isinstance(theirs, str) and isinstance(own, str):
            # A 500 is Phoenix falling over what we refuse.
            if text in ACCEPTED:
                different.append(f"{text!r}: refused by both ({theirs}; {own})")
        elif isinstance(theirs, str) or isinstance(own, str):
            different.append(f"{text!r}: Phoenix {theirs if isinstance(theirs, str) else f'finds {len(theirs)}'}, ours {own if isinstance(own, str) else f'finds {len(own)}'}")
        elif theirs != own:
            different.append(f"{text!r}: Phoenix finds {len(theirs)}, ours {len(own)}; only Phoenix {sorted(theirs - own)[:3]}, only ours {sorted(own - theirs)[:3]}")
        else:
            matched += bool(0 < len(own) < len(spans))
    print(f"phoenix parity: {len(filters)} filters, {len(different)} different; {matched} of them find some spans and not all", flush=True)
    return different


def main():
    view = os.path.abspath(sys.argv[1])
    folders = [pathlib.Path(folder) for folder in sys.argv[2:]] or [HERE.parent.parent / "fixtures" / "captures"]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "requests").mkdir()
        (folder / "phoenix").mkdir()
        paths = prepare(view, folders, folder / "requests")
        ran = subprocess.run([view, "list", *paths], capture_output=True, text=True, check=True)
        ours = [json.loads(line) for line in ran.stdout.splitlines()]
        ours = {line["listed"]["context"]["span_id"]: line["listed"] for line in ours}
        try:
            server = servers.Phoenix(folder / "phoenix")
        except servers.NotInstalled as reason:
            print(f"phoenix parity: SKIPPED, it could not be installed: {reason}")
            sys.exit(os.environ.get("CI") == "true")
        with server:
            send(server, paths)
            wait_for(server, len(ours))
            different = compare_spans(listed(server), ours)
            print(f"phoenix parity: {len(ours)} spans, {len(different)} differences", flush=True)
            different += compare_filters(server, view, paths, ours, folder)
    for line in different[:200]:
        print(f"  {line}")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
