"""Traces of a ReAct agent as OTLP request bodies, made once and kept in the cache folder.

A trace has a root, a model span and a tool span for each step, and a last model span; the messages a model is sent
grow from step to step and stand there twice, as messages and as `input.value`, as instrumentations write them. Spans
come in the order in which they end, eight traces at a time, a hundred to a request: a trace is spread over requests.
The text is drawn from a vocabulary by Zipf's law with a fixed seed, so that it packs about as well as prose does.

Ids and times are patched into the bytes (`Template.body`), so that a body is cheap to send again as a new one.
"""
import hashlib
import itertools
import json
import os
import pathlib
import pickle
import random
import struct

CACHE = pathlib.Path(os.environ.get("GRADUS_TEST_CACHE") or pathlib.Path.home() / ".cache" / "gradus")
SEED = 20_260
BATCH = 100
MODEL = b"\x05\n\x03LLM"  # the span kind of a model span, as bytes
AT_ONCE = 8

COMMON = """the of and to in a is that for it as was with be by on not he this are or his from at which but have an had they you
were their one all we can her has there been if more when will would who so no out up into them then what its about some could
only other time these two may first any my now such like our over even most after also did many before must through years where
much your way well down should because each just those people how too good state make see work under last order open closed due
customer report list number issue file search result check update next find look value error page user account address price
stock delivery day week total amount status answer question item team review change line branch build test release""".split()
TOOLS = {"search_issues": ["repository", "query"], "read_file": ["path", "revision"], "list_orders": ["customer", "status"],
         "get_customer": ["email"], "lookup_price": ["article", "currency"], "check_stock": ["article", "warehouse"],
         "create_ticket": ["title", "body"], "query_table": ["statement"], "fetch_page": ["url"], "run_tests": ["target", "filter"]}
AGENTS = [("support_agent", "gpt-4o", ["list_orders", "get_customer", "create_ticket", "lookup_price"]),
          ("code_agent", "claude-sonnet-5-5", ["search_issues", "read_file", "run_tests"]),
          ("stock_agent", "gpt-4o-mini", ["check_stock", "lookup_price", "query_table"]),
          ("research_agent", "gpt-4o", ["fetch_page", "search_issues", "query_table"]),
          ("triage_agent", "gemini-3-pro", ["search_issues", "create_ticket", "get_customer"])]


class Prose:
    """Random text: common words first, some thousands of rarer ones behind them."""

    def __init__(self, rng, text_share):
        self.rng, self.text_share = rng, text_share
        syllables = [a + b for a in "b c d f g l m n p r s t v st tr pl gr".split() for b in "a e i o u al en or is ar".split()]
        rare = sorted({"".join(rng.choices(syllables, k=rng.choice((2, 2, 3, 3, 4)))) for _ in range(6_000)})
        rng.shuffle(rare)
        self.words = COMMON + rare
        self.weights = list(itertools.accumulate(1 / (rank + 12) for rank in range(len(self.words))))

    def text(self, length):
        """About `length` characters in sentences, or the share of them that is wanted."""
        words = self.rng.choices(self.words, cum_weights=self.weights, k=max(2, int(length * self.text_share) // 6))
        out = []
        while words:
            cut = self.rng.randint(6, 18)
            sentence, words = words[:cut], words[cut:]
            out.append(" ".join(sentence).capitalize() + self.rng.choice((".", ".", ".", "?", ", which is so.", f" ({self.rng.randint(2, 9999)}).")))
        return " ".join(out)


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def part(field, content):
    """A length-delimited field."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def attribute(key, value, field=9):
    if isinstance(value, str):
        any_value = part(1, value.encode())
    elif isinstance(value, bool):
        any_value = b"\x10" + bytes([value])
    elif isinstance(value, int):
        any_value = b"\x18" + varint(value)
    else:
        any_value = b"\x21" + struct.pack("<d", value)
    return part(field, part(1, key.encode()) + part(2, any_value))


class Maker:
    """Traces, one after another."""

    def __init__(self, seed, text_share):
        self.rng = random.Random(seed)
        self.prose = Prose(self.rng, text_share)
        self.prompts = {}
        for agent, _, tools in AGENTS:
            described = "\n".join(f"> Tool Name: {tool}\nTool Description: {self.prose.text(70)}\nTool Args: {json.dumps(TOOLS[tool])}" for tool in tools)
            self.prompts[agent] = f"You are {agent}. {self.prose.text(280)}\n\n## Tools\n{described}\n\n## Output Format\n{self.prose.text(150)}"

    def record(self):
        rng = self.rng
        return {"id": rng.getrandbits(32), "name": self.prose.text(20), "state": rng.choice(("open", "closed", "due")),
                "amount": round(rng.uniform(1, 5000), 2), "note": self.prose.text(rng.randint(30, 160))}

    def trace(self):
        """The spans of one trace as they end: (span id, parent id, name, start ms, end ms, rest of the message)."""
        rng, prose = self.rng, self.prose
        agent, model, tools = rng.choice(AGENTS)
        query = prose.text(rng.randint(60, 300))
        messages = [("system", self.prompts[agent]), ("user", query)]
        root, now, spans, failed = rng.randbytes(8), rng.randint(1, 20), [], False
        session = f"session-{rng.randint(1, 4000)}"
        steps = rng.choice((2, 3, 3, 4, 4, 4, 5, 5, 6))
        for step in range(steps + 1):
            last = step == steps
            tool = rng.choice(tools)
            arguments = {key: prose.text(rng.randint(8, 60)) for key in TOOLS[tool]}
            if last:
                said = f"Thought: I can answer without using any more tools.\nAnswer: {prose.text(rng.randint(150, 500))}"
            else:
                said = f"Thought: {prose.text(rng.randint(60, 220))}\nAction: {tool}\nAction Input: {json.dumps(arguments)}"
            start, now = now, now + rng.randint(300, 4000)
            spans.append((rng.randbytes(8), root, "OpenAI.chat", start, now, self.model_span(model, messages, said, session)))
            if last:
                break
            fails = rng.random() < 0.05
            seen = f"{tool} failed: {prose.text(60)}" if fails else json.dumps([self.record() for _ in range(rng.choice((1, 1, 2, 3)))])
            failed = failed or (fails and rng.random() < 0.3)
            start, now = now + 1, now + rng.randint(5, 900)
            spans.append((rng.randbytes(8), root, tool, start, now, self.tool_span(tool, arguments, seen, session, fails, now)))
            messages = [*messages, ("assistant", said), ("user", f"Observation: {seen}")]
        answer = said.split("Answer: ", 1)[-1]
        rest = [attribute("openinference.span.kind", "AGENT"), attribute("agent.name", agent), attribute("agent.version", "1.4.0"), attribute("session.id", session),
                attribute("input.value", query), attribute("input.mime_type", "text/plain"),
                attribute("output.value", answer), attribute("output.mime_type", "text/plain"),
                attribute("metadata", json.dumps({"tenant": rng.randint(1, 300), "release": "2026.11", "trace": prose.text(300)}))]
        rest.append(part(15, part(2, b"the agent gave up") + b"\x18\x02") if failed else part(15, b"\x18\x01"))
        spans.append((root, None, agent, 0, now + 2, b"".join(rest)))
        return rng.randbytes(16), spans

    def model_span(self, model, messages, said, session):
        prompt, completion = sum(len(text) for _, text in messages) // 4, len(said) // 4
        rest = [attribute("openinference.span.kind", "LLM"), attribute("llm.model_name", model), attribute("session.id", session),
                attribute("llm.invocation_parameters", '{"temperature": 0.1, "max_tokens": 1024}')]
        for number, (role, text) in enumerate(messages):
            rest.append(attribute(f"llm.input_messages.{number}.message.role", role))
            rest.append(attribute(f"llm.input_messages.{number}.message.content", text))
        rest += [attribute("llm.output_messages.0.message.role", "assistant"), attribute("llm.output_messages.0.message.content", said),
                 attribute("input.value", json.dumps({"messages": [{"role": role, "content": text} for role, text in messages]})),
                 attribute("input.mime_type", "application/json"), attribute("output.value", f"assistant: {said}"),
                 attribute("llm.token_count.prompt", prompt), attribute("llm.token_count.completion", completion),
                 attribute("llm.token_count.total", prompt + completion), part(15, b"\x18\x01")]
        return b"".join(rest)

    def tool_span(self, tool, arguments, seen, session, fails, now):
        rest = [attribute("openinference.span.kind", "TOOL"), attribute("tool.name", tool), attribute("session.id", session),
                attribute("tool.description", f"{tool}({', '.join(arguments)})"), attribute("tool.parameters", json.dumps(arguments)),
                attribute("input.value", json.dumps({"kwargs": arguments})), attribute("input.mime_type", "application/json"),
                attribute("output.value", seen), attribute("output.mime_type", "text/plain")]
        if fails:
            event = part(2, b"exception") + attribute("exception.type", "ToolError", 3) + attribute("exception.message", seen, 3)
            rest.append(part(11, event))
        rest.append(part(15, part(2, seen.encode()) + b"\x18\x02") if fails else part(15, b"\x18\x01"))
        return b"".join(rest)


class Template:
    """Request bodies with the places of their ids and times."""

    def __init__(self, spans, traces, bodies):
        self.spans, self.traces, self.bodies = spans, traces, bodies
        self.bytes = sum(len(body) for body, _ in bodies)
        self.model_spans = sum(body.count(MODEL) for body, _ in bodies)

    def body(self, number, mask, base_ns, spacing_ns):
        """One body as a new one: ids under another mask, trace n started at base + n * spacing."""
        body, places = self.bodies[number]
        body = bytearray(body)
        trace_mask, span_mask = mask, mask & 0xFFFF_FFFF_FFFF_FFFF
        pack_16, pack_8, pack_into = int.from_bytes, int.from_bytes, struct.pack_into
        for trace_at, span_at, parent_at, time_at, trace, start_ms, end_ms in places:
            body[trace_at:trace_at + 16] = (pack_16(body[trace_at:trace_at + 16], "big") ^ trace_mask).to_bytes(16, "big")
            body[span_at:span_at + 8] = (pack_8(body[span_at:span_at + 8], "big") ^ span_mask).to_bytes(8, "big")
            if parent_at:
                body[parent_at:parent_at + 8] = (pack_8(body[parent_at:parent_at + 8], "big") ^ span_mask).to_bytes(8, "big")
            started = base_ns + trace * spacing_ns
            pack_into("<Q", body, time_at, started + start_ms * 1_000_000)
            pack_into("<Q", body, time_at + 9, started + end_ms * 1_000_000)
        return body


def resource():
    attributes = [("service.name", "agents"), ("telemetry.sdk.language", "python"), ("telemetry.sdk.name", "opentelemetry"),
                  ("telemetry.sdk.version", "1.45.2"), ("openinference.project.name", "bench")]
    return part(1, b"".join(attribute(key, value, 1) for key, value in attributes))


def make(count, batch, seed, text_share):
    maker = Maker(seed, text_share)
    scope = part(1, part(1, b"openinference.instrumentation.llama_index") + part(2, b"4.6.1"))
    open_, traces, made, bodies = [], 0, 0, []
    while made < count:
        blob, places = bytearray(), []
        for _ in range(min(batch, count - made)):
            while len(open_) < AT_ONCE:
                trace_id, spans = maker.trace()
                open_.append((traces, trace_id, iter(spans), len(spans)))
                traces += 1
            chosen = maker.rng.randrange(AT_ONCE)
            number, trace_id, spans, left = open_[chosen]
            span_id, parent, name, start, end, rest = next(spans)
            open_[chosen] = (number, trace_id, spans, left - 1)
            if left == 1:
                del open_[chosen]
            head = part(1, trace_id) + part(2, span_id) + (part(4, parent) if parent else b"") + part(5, name.encode()) + b"\x30\x01"
            span = head + b"\x39" + bytes(8) + b"\x41" + bytes(8) + rest
            lead = b"\x12" + varint(len(span))
            at = len(blob) + len(lead)
            places.append((at + 2, at + 20, at + 30 if parent else 0, at + len(head) + 1, number, start, end))
            blob += lead + span
        spans_of_scope = b"\x12" + varint(len(scope) + len(blob)) + scope
        whole = resource() + spans_of_scope + blob
        body = part(1, whole)
        shift = len(body) - len(blob)
        places = [(a + shift, b + shift, c and c + shift, d + shift, *rest) for a, b, c, d, *rest in places]
        bodies.append((bytes(body), places))
        made += len(places)
    return Template(count, traces, bodies)


def template(count, batch=BATCH, text_share=1):
    """The template with this many spans, from the cache folder if it is there. `text_share` makes all texts shorter."""
    version = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:10]
    path = CACHE / f"collecting-spans-{version}-{count}-{batch}-{text_share}.pickle"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob("collecting-spans-*.pickle"):
            if f"-{version}-" not in old.name:
                old.unlink()
        made = make(count, batch, SEED, text_share)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps((made.spans, made.traces, made.bodies)))
        partial.rename(path)
        return made
    return Template(*pickle.loads(path.read_bytes()))
