"""All model spans of a project as a CSV table, in bounded memory: the server writes the table, this one only stores it.

  table.py PORT PROJECT FILE

Prints one JSON object: rows, columns, seconds until the table stood, its bytes, peak memory.
"""
import csv
import http.client
import json
import os
import pathlib
import sys
import time
import urllib.parse


def peak_mib():
    """Of this program alone: `ru_maxrss` would count the memory of the one that started it."""
    status = pathlib.Path("/proc/self/status").read_text()
    return round(int(status.split("VmHWM:")[1].split()[0]) / 1024, 1)


def main():
    port, project, path = sys.argv[1:]
    start = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=600)
    connection.request("GET", f"/api/v1/projects/{urllib.parse.quote(project, safe='')}/spans?kind=LLM&format=csv")
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"status {answer.status}: {answer.read()[:500]!r}")
    first_s = None
    with open(path, "wb") as file:
        while piece := answer.read1(1 << 18):
            first_s = first_s or time.monotonic() - start
            file.write(piece)
    seconds = time.monotonic() - start
    peak = peak_mib()
    # Whether it is what it should be is looked at afterwards, and not measured.
    csv.field_size_limit(1 << 30)
    with open(path, newline="") as file:
        table = csv.reader(file)
        columns = next(table)
        rows = sum(1 for row in table if len(row) == len(columns) and row[4] == "LLM" and json.loads(row[-1]))
    print(json.dumps({
        "rows": rows, "columns": len(columns), "seconds": round(seconds, 2), "first_row_s": round(first_s or 0, 3),
        "streamed_bytes": os.path.getsize(path), "client_peak_memory_mib": peak}))


if __name__ == "__main__":
    main()
