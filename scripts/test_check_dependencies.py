#!/usr/bin/env python3
"""check_dependencies.py finds what it is there for: planted lock files, each with one fault."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_dependencies as checks
import update_advisories

HERE = pathlib.Path(__file__).resolve().parent
CRATES_IO = "registry+https://github.com/rust-lang/crates.io-index"
DATABASE = {
    "source": "a test", "licence": "CC0-1.0", "commit": "0" * 40, "date": "2026-01-02T03:04:05Z", "crates": ["lamp", "chair", "openssl-sys"],
    "advisories": [
        {"id": "RUSTSEC-2026-0001", "package": "lamp", "date": "2026-01-01", "patched": [">=1.2.3"], "unaffected": ["<1.1"]},
        {"id": "RUSTSEC-2026-0002", "package": "chair", "date": "2026-01-01", "informational": "unmaintained", "patched": [], "unaffected": []},
        {"id": "RUSTSEC-2026-0003", "package": "lamp", "date": "2026-01-01", "informational": "notice", "patched": [], "unaffected": []},
    ],
}
DENY = """
[advisories]
ignore = [{ids}]
[bans]
multiple-versions = "warn"
deny = [{{ crate = "openssl-sys", reason = "rustls is used" }}]
[sources]
allow-registry = ["https://github.com/rust-lang/crates.io-index"]
"""


def package(name, version, source=CRATES_IO, checksum="c" * 64):
    lines = [f'name = "{name}"', f'version = "{version}"', f'source = "{source}"']
    return "\n".join(["[[package]]", *lines, *([f'checksum = "{checksum}"'] if checksum else [])])


class Planted(unittest.TestCase):
    def check(self, *packages, ids="", database=DATABASE, today="2026-02-01"):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "Cargo.lock").write_text("version = 4\n\n" + "\n\n".join(packages) + "\n")
            (folder / "deny.toml").write_text(DENY.format(ids=ids))
            (folder / "advisories.json").write_text(json.dumps(database))
            words = ["--lock", folder / "Cargo.lock", "--deny", folder / "deny.toml", "--advisories", folder / "advisories.json", "--today", today]
            ran = subprocess.run([sys.executable, HERE / "check_dependencies.py", *map(str, words)], capture_output=True, text=True)
        return ran.returncode, ran.stdout + ran.stderr

    def test_good_lock_passes_and_names_the_date(self):
        code, said = self.check(package("lamp", "1.2.3"))
        self.assertEqual(code, 0, said)
        self.assertIn("against 3 advisories of 2026-01-02", said)

    def test_vulnerable_version_fails(self):
        code, said = self.check(package("lamp", "1.2.2"))
        self.assertEqual(code, 1, said)
        self.assertIn("lamp 1.2.2: RUSTSEC-2026-0001 (vulnerability)", said)

    def test_unaffected_version_and_notice_pass(self):
        code, said = self.check(package("lamp", "1.0.9"))
        self.assertEqual(code, 0, said)
        self.assertIn("note: lamp 1.0.9: RUSTSEC-2026-0003", said)

    def test_unmaintained_crate_fails_unless_it_is_ignored_with_a_reason(self):
        self.assertEqual(self.check(package("chair", "3.0.0"))[0], 1)
        reason = '{ id = "RUSTSEC-2026-0002", reason = "nothing else sits" }'
        self.assertEqual(self.check(package("chair", "3.0.0"), ids=reason)[0], 0)
        self.assertEqual(self.check(package("chair", "3.0.0"), ids='"RUSTSEC-2026-0002"')[0], 2)
        self.assertEqual(self.check(package("chair", "3.0.0"), ids='{ id = "RUSTSEC-2026-0002", reason = " " }')[0], 2)

    def test_ignore_that_is_not_needed_fails(self):
        code, said = self.check(package("lamp", "1.2.3"), ids='{ id = "RUSTSEC-2026-0002", reason = "r" }')
        self.assertEqual(code, 1, said)
        self.assertIn("affects nothing here", said)

    def test_crate_that_the_database_does_not_cover_fails(self):
        code, said = self.check(package("table", "1.0.0"))
        self.assertEqual(code, 1, said)
        self.assertIn("table: the advisory database does not cover it", said)

    def test_banned_crate_fails(self):
        code, said = self.check(package("openssl-sys", "0.9.1"))
        self.assertEqual(code, 1, said)
        self.assertIn("openssl-sys 0.9.1: banned: rustls is used", said)

    def test_other_sources_fail(self):
        for source in ["git+https://github.com/rust-lang/crates.io-index?rev=1#2", "registry+https://mirror.example/index", "sparse+https://mirror.example/"]:
            code, said = self.check(package("lamp", "1.2.3", source=source))
            self.assertEqual(code, 1, said)
            self.assertIn("is not in deny.toml", said)
        self.assertEqual(self.check(package("lamp", "1.2.3", checksum=None))[0], 1)

    def test_old_database_is_said_to_be_old(self):
        self.assertIn("warning: the advisory database is", self.check(package("lamp", "1.2.3"), today="2027-01-01")[1])


class Versions(unittest.TestCase):
    def test_requirements_match_as_cargo_has_them(self):
        for requirement, inside, outside in [
            (">=1.2.3", ["1.2.3", "1.2.4", "2.0.0"], ["1.2.2", "1.2.3-rc.1"]),
            ("<0.3, >=0.2.5", ["0.2.5", "0.2.9"], ["0.2.4", "0.3.0"]),
            ("^1.2", ["1.2.0", "1.9.9"], ["1.1.9", "2.0.0"]),
            ("^0.2.3", ["0.2.3", "0.2.9"], ["0.3.0", "0.2.2"]),
            ("^0.0.3", ["0.0.3"], ["0.0.4"]),
            ("1.2.3", ["1.3.0"], ["2.0.0"]),
            ("~1.2.3", ["1.2.9"], ["1.3.0"]),
            ("~1", ["1.9.0"], ["2.0.0"]),
            ("=1.2.3", ["1.2.3"], ["1.2.4"]),
            ("> 1.0, < 1.5", ["1.0.1"], ["1.0.0", "1.5.0"]),
            ("*", ["0.0.1"], []),
        ]:
            for version in inside:
                self.assertTrue(checks.matches(version, requirement), (version, requirement))
            for version in outside:
                self.assertFalse(checks.matches(version, requirement), (version, requirement))
        order = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0"]
        self.assertEqual(sorted(reversed(order), key=checks.parse_version), order)

    def test_advisories_are_read_from_their_front_matter(self):
        text = '```toml\n[advisory]\nid = "RUSTSEC-2026-0009"\npackage = "lamp"\ndate = "2026-01-01"\n[versions]\npatched = [">= 2"]\n```\n\n# Title\n'
        kept = update_advisories.read_advisory(text)
        self.assertEqual((kept["id"], kept["patched"], kept["unaffected"]), ("RUSTSEC-2026-0009", [">= 2"], []))
        self.assertIsNone(update_advisories.read_advisory(text.replace("[versions]", 'withdrawn = "2026-02-01"\n[versions]')))


class Licences(unittest.TestCase):
    def test_optional_features_are_read(self):
        names = {package["name"] for package in checks.list_packages()}
        self.assertLessEqual({"postgres", "object_store", "parquet"}, names)

    def test_expressions(self):
        allowed = {"MIT", "Apache-2.0"}
        for expression, wanted in [("MIT", True), ("MIT/GPL-3.0", True), ("MIT AND GPL-3.0", False), ("(MIT OR GPL-3.0) AND Apache-2.0", True), ("none", False)]:
            self.assertEqual(checks.is_allowed(expression, allowed), wanted, expression)


if __name__ == "__main__":
    unittest.main()
