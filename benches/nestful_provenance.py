"""Compares the sources that `argument_provenance` reports with the gold of NESTFUL (https://github.com/IBM/NESTFUL).

NESTFUL's arguments are literals or references to earlier results (`$var1.id$`), so the source of each argument is known. Its
executable items call paid web services and its data records no results. Results are therefore made from the output
specification of each function, one distinct value per field; references and arithmetic are computed from them.
"""
import hashlib
import json
import re

WORDS = "amber birch cedar delta ember fjord grove harbor island juniper kestrel lagoon meadow nectar orchid prairie quartz river".split()


def field_value(name, spec, seed):
    """A value for one field of a result. Equal seeds give equal values."""
    digest = int(hashlib.sha256(f"{seed}/{name}".encode()).hexdigest(), 16)
    kind = str(spec.get("type", "string")).lower()
    if kind == "object" or "properties" in spec:
        return {key: field_value(key, inner, f"{seed}/{name}") for key, inner in (spec.get("properties") or {}).items() if isinstance(inner, dict)}
    if kind in ("array", "list"):
        return [field_value(f"{name}{at}", spec.get("items") or {}, seed) for at in range(2)]
    if kind in ("number", "integer", "float"):
        return round(200 + digest % 900000 / 100, 2)
    if kind in ("boolean", "bool"):
        return True
    if re.search(r"(id|cik|number|code)\d*$", name.lower()):
        return f"{chr(65 + digest % 26)}{digest % 10**8:08}"
    if re.search(r"rate|price", name.lower()):
        return f"{200 + digest % 900000 / 100:.2f}"
    if "time" in name.lower() or "date" in name.lower():
        return f"2024-{1 + digest % 12:02}-{1 + digest // 12 % 28:02} {digest % 24:02}:{digest % 60:02}"
    if re.search(r"user|login|short", name.lower()):
        return f"{WORDS[digest % 18]}_{WORDS[digest // 18 % 18]}{digest % 97}"
    return f"{WORDS[digest % 18]} {WORDS[digest // 18 % 18]} {WORDS[digest // 324 % 18]}".title()


def find_field(result, path):
    """The value at `author[0].id`; where the specification has no such field, one is added."""
    keys = re.findall(r"[^.\[\]]+", path)
    holder = result
    for at, key in enumerate(keys):
        if isinstance(holder, list):
            holder = holder[int(key)] if key.isdigit() and int(key) < len(holder) else holder[0]
            if key.isdigit():
                continue
        if not isinstance(holder, dict):
            return None
        if key not in holder:
            is_last = at + 1 == len(keys)
            holder[key] = field_value(key, {}, path) if is_last else {}
        holder = holder[key]
    return holder


def resolve_argument(value, results):
    """The value of an argument, its source, and the numbers of the steps it refers to."""
    if not isinstance(value, str) or not re.search(r"var\d+[^$]*\$", value):
        return value, "literal", []
    references = re.findall(r"\$?(var(\d+)\.?([^$]*))\$", value)
    found = [find_field(results[int(number)], path) if path else results[int(number)] for _, number, path in references]
    steps = [int(number) for _, number, _ in references]
    product = re.fullmatch(r"(\d+) \* \$?var[^$]*\$", value)
    if product:
        return f"{int(product[1]) * float(found[0]):.2f}", "derived", steps
    if len(references) > 1:
        return " - ".join(map(str, found)), "derived", steps
    return found[0], "result", steps


def tool_definition(function):
    properties, required = {}, []
    parameters = {**function.get("path_parameters", {}), **function.get("query_parameters", {})}
    for name, about in parameters.items():
        schema = {"type": {"enum": "string"}.get(str(about.get("type")).lower(), str(about.get("type", "string")).lower())}
        choices = about.get("enum") or about.get("allowed_values") or about.get("possible_values")
        schema.update({key: about[key] for key in ("description", "default") if key in about})
        if isinstance(choices, list):
            schema["enum"] = choices
        properties[name] = schema
        if about.get("required"):
            required.append(name)
    return {"name": function["name"], "description": function.get("description"),
            "schema": {"type": "object", "properties": properties, "required": required}}


def literal_sources(value, question, schema):
    """The sources that a literal can have, by the question and the schema. Empty: the author's own choice."""
    sources, text = set(), str(value).lower()
    if re.search(rf"(?<![\w.]){re.escape(text)}(?![\w])", question.lower()):
        sources.add("request")
    date = re.fullmatch(r"\d{4}-(\d\d)-(\d\d)", text)
    if date:
        month = "january february march april may june july august september october november december".split()[int(date[1]) - 1]
        if re.search(rf"{month[:3]}[a-z]*\.? 0?{int(date[2])}(?!\d)|0?{int(date[2])}(st|nd|rd|th)? (of )?{month[:3]}", question.lower()):
            sources.add("request")
    choices = [str(one).lower() for one in (schema.get("enum") or [])] + [str(schema.get("default", "")).lower()]
    if text in choices or re.search(rf"(?<!\w){re.escape(text)}(?!\w)", str(schema.get("description", "")).lower()):
        sources.add("schema")
    return sources


def build_item(number, item, functions):
    """The trajectory of an item and the gold of its arguments: (step, parameter, value, sources, steps referred to)."""
    steps, gold, results, tools = [], [], {}, {}
    for call in item["output"]:
        if call["name"] == "var_result":
            continue
        function = functions[call["name"]]
        tools[call["name"]] = tool_definition(function)
        properties = tools[call["name"]]["schema"]["properties"]
        index, arguments = len(steps) + 1, {}
        for name, value in call["arguments"].items():
            arguments[name], source, referred = resolve_argument(value, results)
            sources = {source} if source != "literal" else literal_sources(value, item["input"], properties.get(name, {}))
            gold.append((index, name, arguments[name], sources, referred))
        label = int(re.sub(r"\D", "", call.get("label") or f"var{index}"))
        output = function.get("output_parameters") or {}
        results[label] = {name: field_value(name, about if isinstance(about, dict) else {}, f"{number}/{index}") for name, about in output.items()}
        steps.append(dict(index=index, thought=None, tool=call["name"], tool_call_id=f"call_{index}", arguments=arguments, arguments_raw=None,
                          observation=results[label], is_error=False, parallel_with_previous=False, agent=None, span_ids=[], start=None,
                          end=None, tokens=dict(prompt=0, completion=0)))
    # References can add fields to a result, so results are written last.
    for step in steps:
        step["observation"] = json.dumps(step["observation"])
    trajectory = dict(trajectory_id=f"nestful-{number}", trace_ids=[], session_id=None, query=item["input"], final_answer="Done.", steps=steps,
                      tools=list(tools.values()), tokens=dict(prompt=0, completion=0), defects=[], answer_span_ids=[], is_error=False)
    return trajectory, gold


def reported_source(line, name, value):
    """The source that the outcome's evidence gives for an argument: (class, step, text)."""
    for evidence in (line or {}).get("evidence") or []:
        if evidence.startswith(f'`{name}` = '):
            if not evidence.startswith(f'`{name}` = "{str(value)[:40]}'):
                continue
            origin = evidence[evidence.index('": ', len(name) + 5) + 3:]
            step = re.match(r"result of step (\d+)", origin)
            kind = ("result" if step else "request" if origin.startswith("request") else "schema" if "schema" in origin
                    else "derived" if origin.startswith("derived") else "no source" if origin == "no source" else "other")
            return kind, int(step[1]) if step else None, origin
    return None, None, "not reported"


def agrees(sources, referred, reported):
    """Whether a reported source is right. A date that the question writes in words is derived from it."""
    kind, step, origin = reported
    if "result" in sources:
        return kind == "result" and step in referred
    if "derived" in sources:
        return kind == "derived"
    if kind == "derived" and "date" in origin:
        return "request" in sources
    return kind in sources
