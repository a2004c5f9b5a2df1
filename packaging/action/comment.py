"""Keeps one comment on the pull request up to date. It is found by a hidden marker, and only among the comments of the
account that writes it: anybody can write a marker."""
import json
import os
import pathlib
import re
import urllib.error
import urllib.request

from plan import check_name
from runner import print_command, read_input, run_step, write_output

# GitHub takes 65,536 characters.
MAX_CHARACTERS = 60_000
MAX_PAGES = 30
TIMEOUT_S = 60
# Who comments with the token of a workflow, which may not ask for its own name.
WORKFLOW_ACCOUNT = "github-actions[bot]"
TITLES = {"pass": "✅ passed", "fail": "❌ failed", "incomplete": "❔ not decided", "nothing": "❔ nothing to judge", "error": "❌ could not judge"}
NO_JOINER = "\u200d"


class Refused(Exception):
    pass


def call(method, path, body=None):
    url = f"{os.environ.get('GITHUB_API_URL', 'https://api.github.com').rstrip('/')}{path}"
    headers = {"accept": "application/vnd.github+json", "authorization": f"Bearer {os.environ['GITHUB_TOKEN']}", "x-github-api-version": "2022-11-28", "user-agent": "gradus-action"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**headers, **({"content-type": "application/json"} if data else {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        raise Refused(f"{method} {path}: HTTP {error.code}") from error
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise Refused(f"{method} {path}: {error}") from error


def pull_request_number():
    """None if the event is about no pull request."""
    try:
        event = json.loads(pathlib.Path(os.environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    number = (event.get("pull_request") or {}).get("number")
    if number is None and (event.get("issue") or {}).get("pull_request"):
        number = event["issue"].get("number")
    return number if isinstance(number, int) else None


def neutralise(text):
    """The report escapes markup, links and mentions. References (#12, GH-12) are found in the rendered text, so a character
    without width goes into each of them, and into mentions that something else wrote."""
    text = re.sub(r"#(?=\d)", f"#{NO_JOINER}", text)
    text = re.sub(r"\b(GH-)(?=\d)", rf"\1{NO_JOINER}", text, flags=re.IGNORECASE)
    text = re.sub(rf"@(?=[A-Za-z0-9])(?!{NO_JOINER})", f"@{NO_JOINER}", text)
    return text.replace("<!--", "&lt;!--")


def shorten(text):
    """Whole lines, with folded sections closed."""
    if len(text) <= MAX_CHARACTERS:
        return text
    kept = text[:MAX_CHARACTERS].rsplit("\n", 1)[0]
    closing = "\n\n</details>" * max(kept.count("<details>") - kept.count("</details>"), 0)
    return f"{kept}{closing}\n\nThe report is longer. The artifact of the job has all of it."


def comment_body(marker, name, verdict, folder):
    try:
        report = (folder / "summary.md").read_text(encoding="utf-8")
    except OSError:
        report = "No report was written. The log of the job has the reason."
    server, repository, run = (os.environ.get(f"GITHUB_{part}", "") for part in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
    commit = os.environ.get("GITHUB_SHA", "")[:12]
    link = f"[job]({server}/{repository}/actions/runs/{run})" if server and repository and run.isdigit() else "the job"
    return f"{marker}\n**{name}: {TITLES.get(verdict, verdict)}** ({link}{', ' + commit if commit.isalnum() else ''})\n\n{shorten(neutralise(report))}\n"


def own_account():
    try:
        return call("GET", "/user")["login"]
    except (Refused, KeyError, TypeError):
        return WORKFLOW_ACCOUNT


def find_comment(repository, number, marker, account):
    for page in range(1, MAX_PAGES + 1):
        comments = call("GET", f"/repos/{repository}/issues/{number}/comments?per_page=100&page={page}")
        for comment in comments:
            if comment["body"].startswith(marker) and (comment.get("user") or {}).get("login") == account:
                return comment["id"]
        if len(comments) < 100:
            return None
    return None


def main():
    number, repository, name = pull_request_number(), os.environ.get("GITHUB_REPOSITORY", ""), check_name(read_input("NAME"))
    if number is None:
        print_command("notice", "no comment: this event is about no pull request")
        return 0
    marker = f"<!-- gradus-action:{name} -->"
    body = comment_body(marker, name, os.environ.get("VERDICT", ""), pathlib.Path(os.environ["REPORT_FOLDER"]))
    try:
        known = find_comment(repository, number, marker, own_account())
        path = f"/repos/{repository}/issues/comments/{known}" if known else f"/repos/{repository}/issues/{number}/comments"
        written = call("PATCH" if known else "POST", path, {"body": body})
    except Refused as error:
        # Pull requests of forks have a token that may only read. The verdict does not depend on the comment.
        print_command("warning", f"the comment could not be written: {error}\nhint: the job needs `permissions: pull-requests: write`; forks have no such token")
        return 0
    write_output("comment-id", written["id"])
    return 0


if __name__ == "__main__":
    run_step(main)
