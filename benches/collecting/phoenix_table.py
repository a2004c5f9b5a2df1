"""All model spans of a project as a data frame, by Phoenix's own client. Runs in Phoenix's environment.

  phoenix_table.py PORT PROJECT
"""
import json
import sys
import time

from phoenix.client import Client
from phoenix.client.types.spans import SpanQuery

from table import peak_mib


def main():
    port, project = sys.argv[1:]
    client = Client(base_url=f"http://127.0.0.1:{port}")
    before, start = peak_mib(), time.monotonic()
    frame = client.spans.get_spans_dataframe(query=SpanQuery().where("span_kind == 'LLM'"), project_identifier=project, limit=100_000_000, timeout=3600)
    print(json.dumps({"rows": len(frame), "columns": len(frame.columns), "seconds": round(time.monotonic() - start, 2),
                      "client_memory_before_mib": before, "client_peak_memory_mib": peak_mib()}))


if __name__ == "__main__":
    main()
