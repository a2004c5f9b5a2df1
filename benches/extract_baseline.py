#!/usr/bin/env python3
"""What a straightforward script does with a LlamaIndex trace: decode, group by trace, regex the replies, join the tools.

  extract_baseline.py FOLDER... [--passes N]

Reads every *.bin below the folders once, then extracts N times and prints one JSON object with the CPU time of a pass.
Needs the `opentelemetry-proto` package. It is the yardstick for `benches/run`, not a part of the product.
"""
import argparse
import collections
import gzip
import json
import pathlib
import re
import time

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REPLY = re.compile(r"Thought:\s*(?P<thought>.*?)\n+Action:\s*(?P<tool>[^\n]+)\n+Action Input:\s*(?P<input>\{.*\})", re.DOTALL)
ANSWER = re.compile(r"(?:Final )?Answer:\s*(?P<answer>.*)", re.DOTALL)


def load(folders):
    bodies = []
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("*.bin")):
            body = path.read_bytes()
            bodies.append(gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body)
    return bodies


def extract(bodies):
    traces = collections.defaultdict(list)
    for body in bodies:
        request = ExportTraceServiceRequest()
        request.ParseFromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    attributes = {a.key: a.value.string_value or a.value.int_value for a in span.attributes}
                    traces[span.trace_id].append((span.start_time_unix_nano, span.name, attributes))
    trajectories = []
    for spans in traces.values():
        spans.sort(key=lambda span: span[0])
        steps, tools, query, answer = [], [], None, None
        for _, _, attributes in spans:
            kind = attributes.get("openinference.span.kind")
            if kind == "LLM" and "llm.output_messages.0.message.content" in attributes:
                if query is None:
                    query = attributes.get("llm.input_messages.1.message.content")
                reply = attributes["llm.output_messages.0.message.content"]
                match = REPLY.search(reply)
                if match:
                    try:
                        arguments = json.loads(match["input"])
                    except ValueError:
                        arguments = None
                    steps.append({"thought": match["thought"].strip(), "tool": match["tool"].strip(), "arguments": arguments})
                elif ANSWER.search(reply):
                    answer = ANSWER.search(reply)["answer"].strip()
            elif kind == "TOOL":
                tools.append((attributes.get("tool.name"), attributes.get("output.value")))
        for step, (_, observation) in zip(steps, tools):
            step["observation"] = observation
        trajectories.append({"query": query, "steps": steps, "final_answer": answer})
    return trajectories


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--passes", type=int, default=20)
    arguments = parser.parse_args()
    bodies = load(arguments.folders)
    best, trajectories = float("inf"), []
    for _ in range(arguments.passes):
        before = time.process_time()
        trajectories = extract(bodies)
        best = min(best, time.process_time() - before)
    steps = sum(len(trajectory["steps"]) for trajectory in trajectories)
    print(json.dumps({"cpu_us": round(best * 1e6), "trajectories": len(trajectories), "steps": steps}))


if __name__ == "__main__":
    main()
