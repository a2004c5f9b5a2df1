#!/usr/bin/env python3
"""Makes scripts/advisories.json: the RustSec advisories on crates in Cargo.lock, with the date of the database.

  scripts/update_advisories.py [--from FOLDER]

FOLDER is a git clone of https://github.com/RustSec/advisory-db; without it, one is made in a temporary folder. Only
identifiers, dates and version ranges are taken, no texts. RustSec publishes them under CC0-1.0.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from check_dependencies import ROOT, read_toml, tomllib

DATABASE = "https://github.com/RustSec/advisory-db"
OUT = ROOT / "scripts" / "advisories.json"


def git(folder, *words):
    ran = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"git {words[0]}: {folder}: {ran.stderr.strip()}")
    return ran.stdout


def front_matter(text):
    """The TOML at the head of an advisory's Markdown."""
    return tomllib.loads(text.split("```toml", 1)[1].split("```", 1)[0])


def read_advisory(text):
    """What is kept of an advisory; None if it was withdrawn."""
    matter = front_matter(text)
    about, versions = matter["advisory"], matter.get("versions", {})
    if "withdrawn" in about:
        return None
    kept = {"id": about["id"], "package": about["package"], "date": str(about["date"])}
    if "informational" in about:
        kept["informational"] = about["informational"]
    return {**kept, "patched": versions.get("patched", []), "unaffected": versions.get("unaffected", [])}


def collect(repository, crates):
    commit, date = git(repository, "log", "-1", "--format=%H %cI").split()
    advisories = []
    # Read from the commit: the folder may be a clone without files.
    for path in git(repository, "ls-tree", "-r", "--name-only", "HEAD", "crates/").splitlines():
        _, crate, name = path.split("/", 2)
        if crate in crates and name.startswith("RUSTSEC-") and name.endswith(".md"):
            advisories.append(read_advisory(git(repository, "show", f"HEAD:{path}")))
    advisories = sorted(filter(None, advisories), key=lambda one: one["id"])
    about = {"source": DATABASE, "licence": "CC0-1.0", "commit": commit, "date": date}
    return {**about, "crates": sorted(crates), "advisories": advisories}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=pathlib.Path, help="a clone of the database")
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    arguments = parser.parse_args()
    crates = {package["name"] for package in read_toml(ROOT / "Cargo.lock")["package"] if "source" in package}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder
        if folder is None:
            folder = pathlib.Path(temporary, "advisory-db")
            git(temporary, "clone", "--quiet", "--depth", "1", DATABASE, str(folder))
        database = collect(folder, crates)
    lines = [f"  {json.dumps(one, ensure_ascii=False)}" for one in database.pop("advisories")]
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in database.items())
    arguments.out.write_text("{\n" + head + ',\n "advisories": [\n' + ",\n".join(lines) + "\n ]\n}\n")
    print(f"{arguments.out}: {len(lines)} advisories on {len(crates)} crates, as of {database['date']}")


if __name__ == "__main__":
    main()
