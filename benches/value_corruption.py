"""Corrupts one character of one value in calls that change something, and counts how often `argument_provenance` notices.

Only calls that the rule explained before the corruption are used, in runs that are known to be good. Every checkable value of
a call is corrupted once, in a copy of the run of its own. The corrupted value keeps its class (digit for digit, letter for
letter) and occurs nowhere in the run; a value for which no such corruption exists is not counted. Neither is an identifier or
address that nothing before the call contains: the agent may have chosen it.
"""
import datetime
import hashlib
import json
import re
import string

KINDS = ["identifier", "email", "date", "number"]
# Short names with a digit or a version (`p0`, `v1.0.0`, `release-1.1`): a caller may choose them, so they are counted apart.
NAME_KIND = "name"
# First words of tool names that say that the tool changes something.
CHANGING_WORDS = {"add", "assign", "book", "cancel", "close", "comment", "commit", "create", "delete", "dispatch", "edit", "exchange",
                  "fork", "invite", "lock", "merge", "modify", "move", "open", "push", "put", "remove", "rename", "reopen", "reply", "request",
                  "rerun", "return", "send", "set", "star", "submit", "transfer", "trigger", "update", "upload", "write"}
NUMBER_WORDS = {"two": 2, "both": 2, "twice": 2, "couple": 2, "pair": 2, "second": 2, "three": 3, "third": 3, "four": 4, "fourth": 4,
                "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "dozen": 12,
                "fifteen": 15, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "ninety": 90, "hundred": 100}
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


def is_changing_tool(name):
    own_name = re.split(r"__|[./:]", name)[-1]
    words = re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", own_name).lower())
    return bool(words) and words[0] in CHANGING_WORDS and "human" not in words


# ---------------------------------------------------------------- values

def parse_date(text):
    try:
        return datetime.date.fromisoformat(text) if re.fullmatch(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None


def classify_value(value):
    """The kind of an argument, or None if it is free text, a flag, or a number up to 1. Identifiers and names contain a digit."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return "number" if abs(value) > 1 else None
    text = value.strip()
    if re.fullmatch(r"[^\s@,;]+@[^\s@,;]+\.[^\s@,;]+", text):
        return "email"
    if parse_date(text):
        return "date"
    if re.search(r"[\s,;/@]", text) or not re.search(r"\d", text) or len(text) > 64:
        return None
    if re.fullmatch(r"[$-]?\d+(\.\d+)?%?", text):
        digits = len(re.findall(r"\d", text))
        is_identifier = "." not in text and (digits >= 6 or text.startswith("0") and digits > 1)
        return "identifier" if is_identifier else "number" if abs(float(text.strip("$%"))) > 1 else None
    is_coded = len(text) >= 5 and "." not in text and (len(re.findall(r"\d", text)) >= 2 or re.fullmatch(r"[A-Z0-9]+", text))
    return "identifier" if is_coded else "name"


def is_offered_by_schema(value, schema):
    """Members of an enum, defaults and constants are explained by the schema whatever they are."""
    schema = schema if isinstance(schema, dict) else {}
    return value in (schema.get("enum") or []) or value == schema.get("default") or value == schema.get("const")


def checkable_values(arguments, schema, path=()):
    """(path, value, kind) of each checkable value, nested ones included; equal values of one call once."""
    found = []
    if isinstance(arguments, dict):
        properties = schema.get("properties") or {} if isinstance(schema, dict) else {}
        for name, value in arguments.items():
            found += checkable_values(value, properties.get(name), path + (name,))
    elif isinstance(arguments, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        for position, value in enumerate(arguments):
            found += checkable_values(value, items, path + (position,))
    elif classify_value(arguments) and not is_offered_by_schema(arguments, schema):
        found.append((path, arguments, classify_value(arguments)))
    if path:
        return found
    unique = {}
    for place, value, kind in found:
        unique.setdefault(str(value), (place, value, kind))
    return list(unique.values())


class RunValues:
    """What occurs in a run, to keep corrupted values out of it."""

    def __init__(self, text):
        self.text = text.lower()
        self.squeezed = re.sub(r"[^a-z0-9@]", "", self.text)
        self.numbers = {float(token.replace(",", "")) for token in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
        self.numbers |= {number for word, number in NUMBER_WORDS.items() if re.search(rf"\b{word}\b", self.text)}

    def contains(self, value, kind):
        if kind == "number":
            return abs(float(str(value).strip("$%"))) in self.numbers
        text = str(value).lower()
        if kind == "date":
            date = parse_date(str(value))
            day, month = date.day, MONTHS[date.month - 1]
            return text in self.text or bool(re.search(rf"\b{month}[a-z]*\.? (the )?0?{day}\b|\b0?{day}(st|nd|rd|th)? (of )?{month}", self.text))
        return re.sub(r"[^a-z0-9@]", "", text) in self.squeezed


def corrupt_value(value, kind, run_values, seed):
    """The value with one character replaced, or None if every such value occurs in the run."""
    text = str(value)
    candidates = []
    for position, letter in enumerate(text):
        if kind == "email" and position > text.index("@"):
            continue
        for letters in (string.digits, string.ascii_lowercase, string.ascii_uppercase):
            if letter in letters:
                candidates += [text[:position] + other + text[position + 1:] for other in letters if other != letter]
    candidates.sort(key=lambda one: hashlib.sha256(f"{seed} {one}".encode()).digest())
    for candidate in candidates:
        changed = candidate
        if not isinstance(value, str):
            changed = type(value)(candidate)
            if str(changed) != candidate:  # a leading zero
                continue
        if classify_value(changed) == kind and not run_values.contains(changed, kind):
            return changed
    return None


def replace_value(arguments, path, value):
    copy = json.loads(json.dumps(arguments))
    holder = copy
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return copy


# ---------------------------------------------------------------- trajectories

def tool_schema(trajectory, name):
    return next((tool.get("schema") for tool in trajectory["tools"] if tool["name"] == name), None)


def known_text(trajectory, position):
    """What the agent could have read before the call at `position`."""
    texts = [trajectory.get("system_prompt"), trajectory.get("query")]
    return "\n".join(filter(None, texts + [step.get("observation") for step in trajectory["steps"][:position]]))


def corruption_targets(trajectory, position, known):
    """The values of a call that can be corrupted: (path, value, kind). `known` is what the agent could have read."""
    step = trajectory["steps"][position]
    known = RunValues(known)
    found = checkable_values(step.get("arguments") or {}, tool_schema(trajectory, step["tool"]))
    return [one for one in found if one[2] in ("number", "date") or known.contains(one[1], one[2])]


def explain_miss(line, path, value):
    """Why the rule did not flag the corrupted value: its evidence line, else the reason of the outcome."""
    if line is None:
        return "no outcome"
    if line["outcome"] != "scored":
        return line.get("reason") or line["outcome"]
    name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
    start = f'`{name}` = "{value}": '
    for evidence in line.get("evidence") or []:
        if evidence.startswith(start):
            return evidence[len(start):]
    return "not traced" if len(line.get("evidence") or []) < 8 else "not among the eight listed values"
