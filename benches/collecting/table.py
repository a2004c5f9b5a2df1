"""All model spans of a project as a CSV table, one column for each attribute, in bounded memory.

  table.py PORT PROJECT FILE

Reads the server's stream twice over: once to a file beside the table while the columns are learned, once from there.
Prints one JSON object: rows, columns, seconds until the stream ended and until the table stood, peak memory.
"""
import csv
import http.client
import json
import os
import pathlib
import sys
import time
import urllib.parse

OWN = ["trace_id", "span_id", "parent_id", "name", "kind", "start", "end", "status"]


def peak_mib():
    """Of this program alone: `ru_maxrss` would count the memory of the one that started it."""
    status = pathlib.Path("/proc/self/status").read_text()
    return round(int(status.split("VmHWM:")[1].split()[0]) / 1024, 1)


def main():
    port, project, path = sys.argv[1:]
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=600)
    connection.request("GET", f"/api/v1/projects/{urllib.parse.quote(project, safe='')}/spans?kind=LLM")
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"status {answer.status}: {answer.read()[:500]!r}")
    columns, rows, first_s = {}, 0, None
    lines = path + ".ndjson"
    with open(lines, "wb") as file:
        for line in answer:
            first_s = first_s or time.monotonic() - start
            if line.strip():
                columns.update(dict.fromkeys(json.loads(line)["attributes"]))
                file.write(line)
                rows += 1
    streamed_s = time.monotonic() - start
    with open(path, "w", newline="") as file, open(lines, "rb") as kept:
        table = csv.DictWriter(file, [*OWN, *columns], extrasaction="ignore")
        table.writeheader()
        for line in kept:
            span = json.loads(line)
            table.writerow({**span["attributes"], **{key: span[key] for key in OWN}})
    print(json.dumps({
        "rows": rows, "columns": len(OWN) + len(columns), "seconds": round(time.monotonic() - start, 2),
        "first_row_s": round(first_s or 0, 3), "streamed_s": round(streamed_s, 2), "streamed_bytes": os.path.getsize(lines),
        "client_peak_memory_mib": peak_mib()}))


if __name__ == "__main__":
    main()
