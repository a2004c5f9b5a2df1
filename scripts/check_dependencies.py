#!/usr/bin/env python3
"""Checks the dependencies in Cargo.lock as deny.toml says: licences, security advisories, banned crates, sources.

  scripts/check_dependencies.py [--lock FILE] [--deny FILE] [--advisories FILE] [--today YYYY-MM-DD]

`cargo deny check` reads the same deny.toml. This script needs no network: advisories come from scripts/advisories.json,
which scripts/update_advisories.py makes from a copy of the RustSec database. Exit codes: 0 all is well, 1 findings, 2 a
file cannot be read. With --lock, licences are not checked: they are in the crates, not in the lock file.
"""
import argparse
import collections
import datetime
import json
import pathlib
import re
import subprocess
import sys

try:
    import tomllib
except ModuleNotFoundError:  # Python before 3.11; pip brings the same reader.
    from pip._vendor import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
# What cargo-deny calls an error unless it is ignored.
FAILING_KINDS = {None, "unsound", "unmaintained"}
OLD_DAYS = 180


class BadFile(Exception):
    pass


def read_toml(path):
    try:
        return tomllib.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise BadFile(f"{path}: {error}") from error


# Licences


def is_allowed(expression, allowed):
    """Understands SPDX's OR, AND and the old slash."""
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


def list_packages():
    """All packages of the workspace with their licences. Optional features are part of what is distributed."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--all-features", "--manifest-path", str(ROOT / "Cargo.toml")]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["packages"]


def check_licences(deny):
    packages = list_packages()
    allowed = set(deny["licenses"]["allow"])
    found = [f"{p['name']} {p['version']}: licence {p['license']!r} is not in deny.toml" for p in packages if not is_allowed(p["license"] or "none", allowed)]
    return found, f"{len(packages)} packages"


# Advisories


def parse_version(text):
    """A version as something to compare: a pre-release comes before its release (SemVer 2.0, section 11)."""
    found = re.fullmatch(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(?:-([0-9A-Za-z.-]+))?(?:\+.*)?", text.strip())
    if not found:
        raise BadFile(f"{text!r} is no version")
    numbers = tuple(int(part or 0) for part in found.group(1, 2, 3))
    if found.group(4) is None:
        return numbers, (1,)
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in found.group(4).split(".")]
    return numbers, (0, *parts)


def matches(version, requirement):
    """Whether a version satisfies a requirement as Cargo writes it: comparators with commas between them."""
    return all(matches_one(version, part.strip()) for part in requirement.split(","))


def matches_one(version, part):
    if part in ("*", ""):
        return True
    operator, text = re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*(.+)", part).groups()
    given = len(re.split(r"[-+]", text, maxsplit=1)[0].split("."))
    wanted, found = parse_version(text), parse_version(version)
    (major, minor, patch), _ = wanted
    if operator in (">=", "<=", ">", "<"):
        return {">=": found >= wanted, "<=": found <= wanted, ">": found > wanted, "<": found < wanted}[operator]
    if operator == "=":
        return found == wanted if given == 3 else found[0][:given] == wanted[0][:given]
    if operator == "~":
        end = (major + 1, 0, 0) if given == 1 else (major, minor + 1, 0)
    elif major > 0 or given == 1:
        end = (major + 1, 0, 0)
    elif minor > 0 or given == 2:
        end = (0, minor + 1, 0)
    else:
        end = (0, 0, patch + 1)
    return wanted <= found and found[0] < end


def is_affected(advisory, version):
    return not any(matches(version, requirement) for requirement in [*advisory["patched"], *advisory["unaffected"]])


def check_advisories(lock, deny, path, today):
    database = json.loads(pathlib.Path(path).read_text())
    ignored = {}
    for entry in deny.get("advisories", {}).get("ignore", []):
        if not isinstance(entry, dict) or not entry.get("reason", "").strip():
            raise BadFile(f"deny.toml: advisories.ignore: {entry!r} has no reason; write {{ id = \"RUSTSEC-…\", reason = \"…\" }}")
        ignored[entry["id"]] = entry["reason"]
    packages = [package for package in lock["package"] if "source" in package]
    covered = set(database["crates"])
    names = sorted({package["name"] for package in packages} - covered)
    found = [f"{name}: the advisory database does not cover it: run scripts/update_advisories.py" for name in names]
    used = set()
    by_crate = collections.defaultdict(list)
    for advisory in database["advisories"]:
        by_crate[advisory["package"]].append(advisory)
    for package in packages:
        for advisory in by_crate[package["name"]]:
            if not is_affected(advisory, package["version"]):
                continue
            kind = advisory.get("informational")
            line = f"{package['name']} {package['version']}: {advisory['id']} ({kind or 'vulnerability'}): https://rustsec.org/advisories/{advisory['id']}"
            if advisory["id"] in ignored:
                used.add(advisory["id"])
                print(f"ignored: {line}: {ignored[advisory['id']]}")
            elif kind in FAILING_KINDS:
                found.append(line)
            else:
                print(f"note: {line}")
    found += [f"deny.toml: advisories.ignore: {one} affects nothing here: remove it" for one in sorted(set(ignored) - used)]
    age = (today - datetime.date.fromisoformat(database["date"][:10])).days
    if age > OLD_DAYS:
        print(f"warning: the advisory database is {age} days old: run scripts/update_advisories.py")
    return found, f"{len(packages)} packages against {len(database['advisories'])} advisories of {database['date'][:10]} (commit {database['commit'][:12]})"


# Bans and sources


def check_bans(lock, deny):
    bans = deny.get("bans", {})
    banned = {entry["crate"]: entry.get("reason", "") for entry in bans.get("deny", [])}
    for name, reason in banned.items():
        if not reason.strip():
            raise BadFile(f"deny.toml: bans.deny: {name} has no reason")
    found = [f"{p['name']} {p['version']}: banned: {banned[p['name']]}" for p in lock["package"] if p["name"] in banned]
    versions = collections.defaultdict(set)
    for package in lock["package"]:
        versions[package["name"]].add(package["version"])
    # `crate` may carry a version, as cargo-deny writes it: name@1.2.
    skipped = {entry["crate"].split("@")[0] for entry in bans.get("skip", [])}
    several = {name: sorted(all_) for name, all_ in versions.items() if len(all_) > 1 and name not in skipped}
    if bans.get("multiple-versions", "warn") == "deny":
        found += [f"{name}: several versions: {', '.join(all_)}" for name, all_ in sorted(several.items())]
    return found, f"{len(banned)} crates are banned, {len(several)} come in several versions"


def check_sources(lock, deny):
    sources = deny.get("sources", {})
    allowed = {f"registry+{registry}" for registry in sources.get("allow-registry", [])}
    allowed |= {f"git+{repository}" for repository in sources.get("allow-git", [])}
    outside = [p for p in lock["package"] if "source" in p and p["source"].split("?")[0].split("#")[0] not in allowed]
    found = [f"{p['name']} {p['version']}: source {p['source']} is not in deny.toml" for p in outside]
    # A crate of the registry is the one that was locked only if its checksum is.
    found += [f"{p['name']} {p['version']}: no checksum in Cargo.lock" for p in lock["package"] if p.get("source", "").startswith("registry+") and not p.get("checksum")]
    return found, f"{len(lock['package'])} packages"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lock", help="another Cargo.lock; then licences are not checked")
    parser.add_argument("--deny", default=ROOT / "deny.toml")
    parser.add_argument("--advisories", default=ROOT / "scripts" / "advisories.json")
    parser.add_argument("--today", type=datetime.date.fromisoformat, default=datetime.date.today())
    arguments = parser.parse_args()
    failed = False
    try:
        deny, lock = read_toml(arguments.deny), read_toml(arguments.lock or ROOT / "Cargo.lock")
        checks = {"bans": lambda: check_bans(lock, deny), "sources": lambda: check_sources(lock, deny)}
        if not arguments.lock:
            checks["licences"] = lambda: check_licences(deny)
        if pathlib.Path(arguments.advisories).exists():
            checks["advisories"] = lambda: check_advisories(lock, deny, arguments.advisories, arguments.today)
        else:
            print(f"advisories: NOT CHECKED, there is no {arguments.advisories}; scripts/update_advisories.py makes it")
        for name, check in checks.items():
            found, about = check()
            print("\n".join([*found, f"{name}: {about}, {len(found)} findings"]))
            failed |= bool(found)
    except (BadFile, KeyError, json.JSONDecodeError) as error:
        print(f"dependencies cannot be checked: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(failed)


if __name__ == "__main__":
    main()
