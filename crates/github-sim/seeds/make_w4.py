#!/usr/bin/env python3
"""Writes w4.toml, the world that is too large for one page: 120 commits by 5 authors over 14 files, 130 issues.

  crates/github/seeds/make_w4.py > crates/github/seeds/w4.toml

Nothing in it is random from run to run. What tasks ask for is planted on purpose: one commit changes TIMEOUT from 30 to 5,
src/router.py is the file that changed most often in the last 100 commits (not counting .github), and some issues were
last touched more than 90 days before the world's clock.
"""
import datetime
import json
import random

AUTHORS = ["octo", "mona", "ada", "grace", "linus"]
FILES = {
    "README.md": "# Atlas\n\nRoutes for everyone.\n",
    "src/router.py": "ROUTES = {}\n",
    "src/config.py": "TIMEOUT = 60\nRETRIES = 1\n",
    "src/client.py": "def get(url):\n    return url\n",
    "src/cache.py": "SIZE = 10\n",
    "src/models.py": "class Route:\n    pass\n",
    "src/errors.py": "class NoRoute(Exception):\n    pass\n",
    "tests/test_router.py": "def test_routes():\n    assert True\n",
    "tests/test_client.py": "def test_get():\n    assert True\n",
    "docs/guide.md": "# Guide\n",
    "docs/api.md": "# API\n",
    "scripts/release.sh": "#!/bin/sh\necho release\n",
    ".github/workflows/ci.yml": "name: CI\non:\n  push:\n  workflow_dispatch:\njobs: {}\n",
    "CHANGELOG.md": "# Changelog\n",
}
# How often each file is changed, out of 100.
WEIGHTS = [4, 19, 6, 9, 8, 7, 4, 8, 5, 5, 4, 3, 16, 2]
COMMENT = {"py": "# ", "md": "- ", "sh": "# ", "yml": "# "}
COMMITS, ISSUES, CLOSED = 120, 130, 13
TIMEOUTS = {12: (60, 45), 33: (45, 30), 71: (30, 5), 96: (5, 20)}
NOW = datetime.datetime(2026, 3, 2, 9, tzinfo=datetime.timezone.utc)


def text(value):
    return json.dumps(value, ensure_ascii=False)


def time(at):
    return text(at.strftime("%Y-%m-%dT%H:%M:%SZ"))


def commits(random):
    files, names = dict(FILES), list(FILES)
    start = datetime.datetime(2025, 8, 1, 8, tzinfo=datetime.timezone.utc)
    yield "Initial commit", "octo", start, files
    for number in range(1, COMMITS):
        at = start + datetime.timedelta(hours=41 * number, minutes=random.randrange(60))
        author = random.choices(AUTHORS, [40, 25, 18, 12, 5])[0]
        if number in TIMEOUTS:
            old, new = TIMEOUTS[number]
            name, message = "src/config.py", random.choice(["chore: tune the client", "fix: answer sooner", "perf: adjust limits"])
            files[name] = files[name].replace(f"TIMEOUT = {old}\n", f"TIMEOUT = {new}\n")
        else:
            name = random.choices(names, WEIGHTS)[0]
            topic = name.rsplit("/", 1)[-1].split(".")[0].lower()
            message = f"{random.choice(['feat', 'fix', 'refactor', 'docs', 'test'])}: {random.choice(['extend', 'simplify', 'correct', 'clarify'])} {topic} ({number})"
            lines = files[name].splitlines(keepends=True)
            files[name] = "".join(lines[:12]) + f"{COMMENT[name.rsplit('.', 1)[1]]}change {number}\n"
        yield message, author, at, {name: files[name]}


def main():
    chance = random.Random(4)
    print("# Made by make_w4.py. A repository with more history and issues than fit on a page.")
    print('extends = "w0"\nnow = "2026-03-02T09:00:00Z"')
    for login in AUTHORS[2:]:
        print(f'\n[[accounts]]\nlogin = "{login}"\nname = "{login.title()}"\nemail = "{login}@example.com"')
    print('\n[[repositories]]\nname = "octo/atlas"\ndescription = "Routes for everyone"\nat = "2025-08-01T07:00:00Z"')
    print("collaborators = { " + ", ".join(f'{login} = "push"' for login in AUTHORS[1:]) + " }")
    print('\n[[repositories.labels]]\nname = "stale"\ncolor = "cccccc"\ndescription = "Nobody came back to this"')
    for message, author, at, files in commits(chance):
        print(f"\n[[repositories.commits]]\nmessage = {text(message)}\nauthor = {text(author)}\nat = {time(at)}\n[repositories.commits.files]")
        for name, content in files.items():
            print(f"{text(name)} = {text(content)}")
    closed = set(chance.sample(range(1, ISSUES + 1), CLOSED))
    subjects = ["Route is not found", "Cache grows for ever", "Client gives up too early", "Guide is out of date", "Error message is unclear", "Slow start"]
    for number in range(1, ISSUES + 1):
        at = NOW - datetime.timedelta(days=205 - 1.55 * number, hours=chance.randrange(10))
        label = chance.choices(["bug", "enhancement", "documentation", None], [40, 30, 15, 15])[0]
        print(f"\n[[repositories.issues]]\ntitle = {text(f'{chance.choice(subjects)} ({number})')}\nauthor = {text(chance.choice(AUTHORS))}\nat = {time(at)}")
        print(f"body = {text(f'Seen in build {1000 + 7 * number}.')}")
        if label:
            print(f"labels = [{text(label)}]")
        if number in closed:
            print(f"closed_as = \"completed\"\nclosed_at = {time(at + datetime.timedelta(days=1))}")
        elif number % 9 == 0:
            # Old, but someone came back to it.
            print(f"comments = [{{ author = \"mona\", body = \"Still there.\", at = {time(NOW - datetime.timedelta(days=20, minutes=number))} }}]")


main()
