#!/usr/bin/env python3
"""Refuses dependencies whose licence is not in deny.toml. Understands SPDX's OR, AND and the old slash."""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def allowed_licences():
    # One list of strings: no TOML reader needed, which older Pythons lack.
    text = (ROOT / "deny.toml").read_text()
    return set(re.findall(r'^\s*"([^"]+)",?$', text[text.index("allow = ["):], re.MULTILINE))


def is_allowed(expression, allowed):
    expression = expression.replace("/", " OR ").strip()
    while expression.startswith("(") and expression.endswith(")") and expression.count("(") == 1:
        expression = expression[1:-1].strip()
    for word, combine in ((" AND ", all), (" OR ", any)):
        parts = split_outside_parentheses(expression, word)
        if len(parts) > 1:
            return combine(is_allowed(part, allowed) for part in parts)
    return expression in allowed


def split_outside_parentheses(text, word):
    parts, depth, start, at = [], 0, 0, 0
    while at < len(text):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth == 0 and text.startswith(word, at):
            parts.append(text[start:at])
            at = start = at + len(word)
        else:
            at += 1
    return [part.strip() for part in (*parts, text[start:])]


def main():
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    packages = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]
    allowed = allowed_licences()
    refused = [p for p in packages if not is_allowed(p["license"] or "none", allowed)]
    for package in refused:
        print(f"{package['name']} {package['version']}: licence {package['license']!r} is not in deny.toml")
    print(f"licences: {len(packages)} packages, {len(refused)} refused")
    sys.exit(bool(refused))


if __name__ == "__main__":
    main()
