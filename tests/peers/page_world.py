"""A server with something to look at: agents of a shop and of a code host, some of whose steps are wrong, sent as OTLP
JSON with the time of now; and one trace whose every text means harm."""
import json
import os
import random
import secrets
import subprocess
import time
import urllib.request

from loopback import Service

TOOLS = {
    "list_orders": ("Lists the orders of a customer.", {"customer": "string", "status": "string"}, ["customer"]),
    "get_order": ("Gets one order by its number.", {"order": "integer"}, ["order"]),
    "refund_order": ("Pays an order back.", {"order": "integer", "reason": "string"}, ["order", "reason"]),
    "search_issues": ("Searches issues of a repository.", {"repository": "string", "query": "string"}, ["repository", "query"]),
    "read_file": ("Reads a file of a repository.", {"repository": "string", "path": "string"}, ["repository", "path"]),
    "get_weather": ("Tells the weather of a city.", {"city": "string"}, ["city"]),
}

# (request, [(thought, tool, arguments, observation, failed)], answer)
GOOD = [
    ("Where is order 4711 of ann@example.com?",
     [("I get order 4711 to see where it is.", "get_order", {"order": 4711}, {"order": 4711, "customer": "ann@example.com", "status": "sent", "carrier": "DHL", "expected": "2026-11-17"}, False)],
     "Order 4711 was sent with DHL and should arrive on 17 November."),
    ("Which open issues of acme/lamp mention a memory leak?",
     [("I search the open issues of acme/lamp for a memory leak.", "search_issues", {"repository": "acme/lamp", "query": "is:open memory leak"}, [{"number": 12, "title": "Memory leak in the dimmer"}, {"number": 31, "title": "Leak after reload"}], False)],
     "Two open issues mention a memory leak: #12 and #31."),
    ("What does the README of acme/lamp say about dimming?",
     [("I read the README of acme/lamp.", "read_file", {"repository": "acme/lamp", "path": "README.md"}, "# Lamp\n\nDimming: use `lamp dim 40`.\n", False)],
     "It says to use `lamp dim 40`."),
    ("Please refund order 5120, the vase arrived broken.",
     [("I look at order 5120 before I pay it back.", "get_order", {"order": 5120}, {"order": 5120, "status": "delivered", "total": 39.9}, False),
      ("The order was delivered, so I refund order 5120 because the vase is broken.", "refund_order", {"order": 5120, "reason": "vase arrived broken"}, {"refunded": 39.9}, False)],
     "Order 5120 was paid back: 39.90 EUR."),
]
# Rules go by names: the thoughts of good runs name the tool that is called.
GOOD = [(request, [(f"{thought} I use {tool}.", tool, *rest) for thought, tool, *rest in steps], answer) for request, steps, answer in GOOD]
BAD = [
    ("Please refund order 6001, it never arrived.",
     [("I should look at the order first. I use get_order.", "get_weather", {"city": "Berlin"}, {"city": "Berlin", "sky": "grey"}, False),
      ("I refund the order now.", "refund_order", {"order": "six thousand"}, "error: order must be an integer, and reason is missing", True),
      ("I refund the order now.", "refund_order", {"order": "six thousand"}, "error: order must be an integer, and reason is missing", True)],
     "I could not refund the order."),
    ("Which orders of bob@example.com are open?",
     [("I list the open orders of bob@example.com.", "list_orders", {"customer": "bob@example.com", "status": "open"}, [{"order": 7001}, {"order": 7002}], False),
      ("I list the open orders of bob@example.com.", "list_orders", {"customer": "bob@example.com", "status": "open"}, [{"order": 7001}, {"order": 7002}], False),
      ("I should find out what the weather is like.", "get_weather", {"city": "Paris"}, {"city": "Paris", "sky": "blue"}, False)],
     "Orders 7001 and 7002 are open."),
    ("Read CHANGELOG.md of acme/lamp and tell me the latest version.",
     [("I read CHANGELOG.md. I use read_file.", "list_orders", {"repository": "acme/lamp", "path": "CHANGELOG.md"}, "error: unknown parameter repository; customer is missing", True),
      ("I read CHANGELOG.md of acme/lamp.", "read_file", {"repository": "acme/lamp", "path": "CHANGELOG.md"}, "## 2.4.1\n\n- fewer leaks\n", False)],
     "The latest version is 2.4.1."),
]
NAMES = "a-project-whose-name-goes-on-and-on-" * 4
# A megabyte each.
FIVE = [(f"I read log {number}.", "read_file", {"repository": "acme/lamp", "path": f"{number}.txt"}, "\n".join(f"{number} {at:06d} the lamp in room {at % 97} was dimmed" for at in range(22_000)), False) for number in range(1, 6)]
HARM = "<script>window.harmed=1</script><img src=x onerror=\"window.harmed=1\">'\"--></title>{{7*7}}\u001b[31m\u202e javascript:window.harmed=1 \u0000</pre></details>"


def attributes(values):
    def shown(value):
        if isinstance(value, bool):
            return {"boolValue": value}
        if isinstance(value, int):
            return {"intValue": str(value)}
        if isinstance(value, float):
            return {"doubleValue": value}
        return {"stringValue": value}
    return [{"key": key, "value": shown(value)} for key, value in values.items()]


def trace(project, agent, version, model, request, steps, answer, started_ns, clean=str, within=None):
    """One trace as an OTLP request; `clean` is what every text passes through. `within` is a trace and a span of it that called this agent."""
    trace_id, caller = within or (secrets.token_hex(16), None)
    root, spans, now = secrets.token_hex(8), [], started_ns + 5_000_000
    rng = random.Random(request + agent)
    tools = {f"llm.tools.{at}.tool.json_schema": json.dumps({"type": "function", "function": {"name": name, "description": about, "parameters": {
        "type": "object", "properties": {key: {"type": kind} for key, kind in fields.items()}, "required": required}}})
        for at, (name, (about, fields, required)) in enumerate(TOOLS.items())}

    def span(name, kind, start, end, values, error=None, parent=root, span_id=None):
        spans.append({"traceId": trace_id, "spanId": span_id or secrets.token_hex(8), "parentSpanId": parent or "", "name": name, "kind": 1,
                      "startTimeUnixNano": str(start), "endTimeUnixNano": str(end), "attributes": attributes({"openinference.span.kind": kind, **values}),
                      "status": {"code": 2, "message": error} if error else {"code": 1}})

    messages = [("system", "You work for a shop that also keeps its code in the open."), ("user", request)]
    for number, (thought, tool, arguments, seen, failed) in enumerate([*steps, (None, None, None, None, False)], 1):
        start, now = now, now + rng.randint(300, 2500) * 1_000_000
        sent = {}
        for at, (role, text) in enumerate(messages):
            sent |= {f"llm.input_messages.{at}.message.role": role, f"llm.input_messages.{at}.message.content": clean(text)}
        said = {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": clean(thought or answer)}
        if tool:
            said |= {"llm.output_messages.0.message.tool_calls.0.tool_call.id": f"call_{number}", "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": clean(tool),
                     "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": json.dumps({key: clean(value) if isinstance(value, str) else value for key, value in arguments.items()})}
        span("chat", "LLM", start, now, {**tools, **sent, **said, "llm.model_name": clean(model), "llm.token_count.prompt": 400 + 90 * number, "llm.token_count.completion": 60})
        if not tool:
            break
        start, now = now + 1_000_000, now + rng.randint(20, 900) * 1_000_000
        text = clean(seen if isinstance(seen, str) else json.dumps(seen))
        span(clean(tool), "TOOL", start, now, {"tool.name": clean(tool), "tool_call.id": f"call_{number}", "input.value": json.dumps(arguments), "output.value": text}, error=text if failed else None)
        messages += [("assistant", thought), ("user", f"{tool} gave: {text[:2000]}")]
    span(clean(agent), "AGENT", started_ns, now + 2_000_000, {"agent.name": clean(agent), "agent.version": clean(version), "input.value": clean(request), "output.value": clean(answer), "metadata": json.dumps({"shop": "lamps"})}, parent=caller, span_id=root)
    resource = {"service.name": "agents", "openinference.project.name": clean(project), "service.version": version}
    body = {"resourceSpans": [{"resource": {"attributes": attributes(resource)}, "scopeSpans": [{"scope": {"name": "page-world"}, "spans": spans}]}]}
    return trace_id, body


def nested(started_ns):
    """An agent that does well and hands over to another, which goes wrong late: far down, in the second trajectory."""
    good = GOOD[0]
    trace_id, outer = trace("nested", "front_agent", "1", "gpt-4o", good[0], good[1], good[2], started_ns)
    root = next(span["spanId"] for span in outer["resourceSpans"][0]["scopeSpans"][0]["spans"] if not span["parentSpanId"])
    steps = [(f"I get order {number} to see where it is.", "get_order", {"order": number}, {"order": number, "status": "sent"}, False) for number in range(1, 13)]
    steps[9] = BAD[0][1][1]
    _, inner = trace("nested", "back_agent", "1", "gpt-4o", "Where are orders 1 to 12?", steps, "All were sent.", started_ns + 60_000_000_000, within=(trace_id, root))
    outer["resourceSpans"][0]["scopeSpans"][0]["spans"] += inner["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in outer["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        if not span["parentSpanId"]:
            span["endTimeUnixNano"] = str(started_ns + 200_000_000_000)
    return trace_id, outer


def spans_of(body):
    return body["resourceSpans"][0]["scopeSpans"][0]["spans"]


def with_attributes(body, kind, values):
    """Adds attributes to the spans of a kind."""
    for span in spans_of(body):
        if any(one["key"] == "openinference.span.kind" and one["value"]["stringValue"] == kind for one in span["attributes"]):
            span["attributes"] += attributes(values)


def crashed(started_ns):
    """A run that ends in an error of its second model call, without an answer."""
    trace_id, body = trace("crashed", "support_agent", "1", "gpt-4o", *GOOD[3], started_ns)
    spans = spans_of(body)
    calls = [span for span in spans if span["name"] == "chat"]
    root = next(span for span in spans if not span["parentSpanId"])
    spans[:] = [calls[0], calls[1], root, *[span for span in spans if span["name"] == "get_order"]]
    for span in (calls[1], root):
        span["status"] = {"code": 2, "message": "429 Too Many Requests"}
        span["attributes"] = [one for one in span["attributes"] if not one["key"].startswith(("llm.output", "output."))]
    return trace_id, body


def parallel(started_ns):
    """A run whose model asks for three orders in one reply; they are looked up at the same time."""
    orders = [4711, 4712, 4713]
    steps = [("I get the three orders with get_order.", "get_order", {"order": order}, {"order": order, "status": "sent"}, False) for order in orders]
    trace_id, body = trace("parallel", "support_agent", "1", "gpt-4o", "Where are orders 4711, 4712 and 4713?", steps, "All three were sent.", started_ns)
    spans = spans_of(body)
    calls, tools = ([span for span in spans if span["name"] == name] for name in ("chat", "get_order"))
    asked = {}
    for number, order in enumerate(orders):
        asked |= {f"llm.output_messages.0.message.tool_calls.{number}.tool_call.{key}": value for key, value in
                  {"id": f"call_{number + 1}", "function.name": "get_order", "function.arguments": json.dumps({"order": order})}.items()}
    first, last = calls[0], calls[-1]
    first["attributes"] = [one for one in first["attributes"] if ".tool_calls." not in one["key"]] + attributes(asked)
    for tool in tools:
        tool["startTimeUnixNano"], tool["endTimeUnixNano"] = str(int(first["endTimeUnixNano"]) + 1_000_000), str(int(first["endTimeUnixNano"]) + 900_000_000)
    spans[:] = [span for span in spans if span not in calls[1:-1]]
    return trace_id, body


def long_run(started_ns, count=2000):
    """A run of very many steps. Each model call has the request and its own reply alone: with all that was said before, the spans would be gigabytes."""
    request, answer = f"Where are orders 1 to {count}?", "All were sent."
    trace_id, body = trace("long", "long_agent", "1", "gpt-4o", request, [], answer, started_ns)
    last, root = spans_of(body)
    spans, now = [root], started_ns + 1_000_000
    for number in range(1, count + 1):
        step = BAD[0][1][1] if number in (3, 700, 1500) else (f"I get order {number} with get_order.", "get_order", {"order": number}, {"order": number, "status": "sent"}, False)
        one = spans_of(trace("long", "long_agent", "1", "gpt-4o", request, [step], answer, now)[1])[:2]
        for span in one:
            span["traceId"], span["parentSpanId"] = trace_id, root["spanId"]
            for attribute in span["attributes"]:
                if attribute["key"].endswith("tool_call.id"):
                    attribute["value"]["stringValue"] = f"call_{number}"
        spans += one
        now = int(one[1]["endTimeUnixNano"])
    last["startTimeUnixNano"], last["endTimeUnixNano"], root["endTimeUnixNano"] = str(now + 1_000_000), str(now + 300_000_000), str(now + 302_000_000)
    spans_of(body)[:] = [*spans, last]
    return trace_id, body


def send(url, body, headers=None):
    request = urllib.request.Request(url + "/v1/traces", json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.status


def fill(url, count=60, hours=30, headers=None):
    """Sends traces that began over the last hours; the ids of one that is wrong, the long one and the harmful one."""
    rng, now, ids = random.Random(7), time.time_ns(), {}
    for number in range(count):
        started = now - int((count - number) / count * hours * 3_600e9) - 60_000_000_000
        # It got worse an hour ago, as things do.
        wrong = rng.random() < (0.25 if number < count * 0.8 else 0.6)
        request, steps, answer = rng.choice(BAD if wrong else GOOD)
        code = any(tool in ("search_issues", "read_file") for _, tool, *_ in steps)
        agent, project = ("code_agent", "code-host") if code else ("support_agent", "shop")
        model = "gpt-4o" if number % 3 else "gpt-4o-mini"
        trace_id, body = trace(project, agent, "1.4.0" if number < count * 0.6 else "1.5.0", model, request, steps, answer, started)
        send(url, body, headers)
        if wrong and project == "shop":
            ids["wrong"] = trace_id
    lines = "\n".join(f"{at:06d} the lamp in room {at % 97} was {'dimmed' if at % 5 else 'switched off'}" for at in range(34_000)) + "\nneedle in the hay\n"
    # Letters that are longer in lower case: places behind them are those of the text as it is.
    lines = lines.replace("\n000050 ", "\n" + 1000 * "İ" + "\n000050 ", 1)
    steps = [("I read the whole log of acme/lamp.", "read_file", {"repository": "acme/lamp", "path": "log.txt"}, lines, False)]
    ids["long"], body = trace("code-host", "code_agent", "1.5.0", "gpt-4o", "Summarise log.txt of acme/lamp.", steps, "Many lamps were dimmed.", now - 50_000_000_000)
    send(url, body, headers)
    ids["harm"], body = trace("harm", HARM, "1", HARM, HARM, [(HARM, "get_weather", {"city": HARM}, HARM, True)], HARM, now - 40_000_000_000, clean=lambda text: text if text == "harm" else HARM)
    send(url, body, headers)
    # A project whose name means harm, too.
    send(url, trace(HARM, HARM, HARM, HARM, HARM, [(HARM, "get_weather", {"city": HARM}, HARM, True)], HARM, now - 40_000_000_000, clean=lambda _: HARM)[1], headers)
    ids["nested"], body = nested(now - 300_000_000_000)
    send(url, body, headers)
    steps = [(f"I get order {number} to see where it is.", "get_order", {"order": number}, {"order": number, "status": "sent"}, False) for number in range(1, 206)]
    steps[2] = steps[202] = BAD[0][1][1]
    ids["many"], body = trace("many", "back_agent", "1", "gpt-4o", "Where are orders 1 to 205?", steps, "All were sent.", now - 900_000_000_000)
    send(url, body, headers)
    # Names without an end, and without a place to break at.
    name = "a_name_that_goes_on_and_on_" * 6
    steps = [("I look.", name, {"customer": "ann"}, {"orders": []}, False), ("I look again.", "get_weather", {"city": 3}, "error: city must be a string", True)]
    ids["names"], body = trace(NAMES, name, name, name, f"Where is {name}?", steps, "Nowhere.", now - 200_000_000_000)
    send(url, body, headers)
    # What the model judges by a rubric of three labels.
    for number, (request, steps, answer) in enumerate(GOOD):
        trace_id, body = trace("graded", "graded_agent", "1", "gpt-4o", request, steps, answer, now - (100 - number) * 1_000_000_000)
        ids.setdefault("graded", trace_id)
        send(url, body, headers)
    for name, make in {"crashed": crashed, "parallel": parallel}.items():
        ids[name], body = make(now - 250_000_000_000)
        send(url, body, headers)
    # A conversation of three turns, the second of which goes wrong.
    name = "chat/42 of ann"
    ids["session"] = "/sessions/chat%2F42%20of%20ann?project=talk"
    for number, (request, steps, answer) in enumerate([GOOD[0], BAD[0], GOOD[3]]):
        trace_id, body = trace("talk", "support_agent", "1", "gpt-4o", request, steps, answer, now - (700 - 100 * number) * 1_000_000_000)
        with_attributes(body, "AGENT", {"session.id": name})
        send(url, body, headers)
        ids[f"turn_{number + 1}"] = trace_id
    ids["five"], body = trace("five", "code_agent", "1", "gpt-4o", "Summarise the five logs.", FIVE, "They are long.", now - 30_000_000_000)
    send(url, body, headers)
    versions(url, now, headers)
    return ids


def versions(url, now, headers=None):
    """Two versions of one agent over the same requests: the second one does worse at some of them."""
    for number in range(12):
        request, steps, answer = GOOD[number % len(GOOD)]
        request = f"{request} It is case {number}."
        for at, version in enumerate(["2.2.0", "2.3.0"]):
            steps_of_version = BAD[0][1][:1] + steps if at and number % 3 == 0 else steps
            body = trace("versions", "shop_agent", version, "gpt-4o", request, steps_of_version, answer, now - (30 - number - 12 * at) * 1_000_000_000)[1]
            send(url, body, headers)


def strict_judge():
    """A model that finds every fourth thing wrong; the same question gets the same answer."""
    def answer(_, __, body):
        request = json.loads(body)
        labels = request["response_format"]["json_schema"]["schema"]["properties"]["label"]["enum"]
        wrong = sum(json.dumps(request["messages"]).encode()) % 4 == 0
        verdict = {"explanation": "It was looked at with care.", "label": labels[-1] if wrong else labels[0]}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": request["model"], "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
                 "choices": [{"index": 0, "message": {"role": "assistant", "content": json.dumps(verdict)}, "finish_reason": "stop"}]}
        return "application/json", json.dumps(reply).encode()

    return Service(answer)


def runs(gradus, url, data, project="shop"):
    """Two runs over what the agents of a project did, by rules and by a model, where the server shows them."""
    source = f"gradus://{url.removeprefix('http://')}/{project}"
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    with strict_judge() as model:
        for judge in (["--judge", "offline"], ["--judge", "openai:strict"]):
            command = [gradus, "eval", source, *judge, "--gate", "failed <= 0.9", "--quiet", "--state-dir", data]
            told = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.url + "/v1"}
            ran = subprocess.run(command, env={**environment, **told}, capture_output=True, text=True, timeout=600)
            if ran.returncode != 0:
                raise RuntimeError(f"gradus eval: {ran.stderr.strip()[-500:]}")
