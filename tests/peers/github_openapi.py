"""Asks a simulator for everything it can do, and holds each answer against GitHub's own description of it.

  python github_openapi.py BASE_URL DESCRIPTION

BASE_URL is a `gradus simulate --seed w3`, DESCRIPTION is api.github.com.json of the npm package @octokit/openapi.
Prints a line for each answer that does not fit; the last line counts. EXCEPTIONS says what is passed over, and why.
"""
import base64
import json
import re
import sys
import urllib.request

import jsonschema

# What the description says that real answers do not keep to. Each: operation, part of the error, why.
EXCEPTIONS = [
    ("repos/create-or-update-file-contents", 409, "the description gives two forms for a 409, and a plain error fits both"),
    ("repos/delete-file", 409, "the same"),
]
# Answers that GitHub gives and the description does not list.
UNDOCUMENTED = {
    # It needs a token, and says so in this way.
    ("search/code", 401),
}
# Names in paths that stand for more than one segment.
LONG = {"path", "ref", "basehead", "branch", "tag", "tree_sha"}


class Description:
    def __init__(self, path):
        with open(path) as file:
            self.document = json.load(file)
        self.operations = {}
        for template, methods in self.document["paths"].items():
            for method, operation in methods.items():
                if isinstance(operation, dict) and "operationId" in operation:
                    self.operations[operation["operationId"]] = (method.upper(), template, operation)
        self.patterns = [(method, pattern(template), template, name) for name, (method, template, _) in self.operations.items()]
        self.resolver = jsonschema.RefResolver("", self.document)
        nullable(self.document)

    def find(self, method, path):
        """The operation that a path means; the one with the fewest names in it."""
        fitting = [(template.count("{"), -len(template), name) for of, pattern, template, name in self.patterns if of == method and pattern.match(path)]
        name = min(fitting)[2] if fitting else None
        return name, self.operations[name][2] if name else None

    def problems(self, name, operation, status, body):
        responses = operation["responses"]
        if str(status) not in responses:
            return [] if (name, status) in UNDOCUMENTED else [f"status {status} is not in the description ({', '.join(responses)})"]
        response = responses[str(status)]
        if "$ref" in response:
            response = self.resolver.resolve(response["$ref"])[1]
        content = response.get("content", {}).get("application/json")
        if content is None:
            return [] if body in (b"", None) or status >= 300 else [f"status {status} should have no body"]
        if body == b"":
            return ["there is no body"]
        validator = jsonschema.Draft7Validator(content["schema"], resolver=self.resolver)
        errors = sorted(validator.iter_errors(json.loads(body)), key=lambda error: len(list(error.path)))
        return [f"{'/'.join(map(str, error.absolute_path))}: {deepest(error)}" for error in errors[:3]]


def pattern(template):
    parts = [f"({'.+' if part[1:-1] in LONG else '[^/]+'})" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{[^}]*\})", template)]
    return re.compile("^" + "".join(parts) + "$")


def deepest(error):
    while error.context:
        error = max(error.context, key=lambda one: len(list(one.absolute_path)))
    return f"{error.message[:160]} (at {'/'.join(map(str, error.absolute_path))})"


def nullable(node):
    """OpenAPI 3.0 says `nullable`, JSON Schema says `null` is one of the types."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            waiting += list(node.values())
            if node.get("nullable") is True:
                if isinstance(node.get("type"), str):
                    node["type"] = [node["type"], "null"]
                if isinstance(node.get("enum"), list) and None not in node["enum"]:
                    node["enum"] = [*node["enum"], None]
                for key in ("allOf", "oneOf", "anyOf"):
                    if key in node and "type" not in node:
                        rest = {key: node.pop(key)}
                        node["anyOf"] = [rest, {"type": "null"}]


class Client:
    def __init__(self, base, description):
        self.base, self.description = base, description
        self.checked, self.found, self.seen = 0, [], {}

    def __call__(self, method, path, body=None, token="test_token_user1", want=None, headers=None):
        request = urllib.request.Request(self.base + path, method=method, data=None if body is None else json.dumps(body).encode())
        for key, value in ({"Authorization": f"Bearer {token}"} if token else {}).items() | (headers or {}).items():
            request.add_header(key, value)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirect).open(request, timeout=120) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, content = error.code, error.read()
        name, operation = self.description.find(method, path.split("?")[0])
        if want is not None and status != want:
            self.found.append(f"{method} {path}: {status} instead of {want}: {content[:200]!r}")
        if name is None:
            self.found.append(f"{method} {path}: the description has no such operation")
        else:
            self.seen.setdefault(name, set()).add(status)
            self.checked += 1
            passed_over = any(name == one and status == code for one, code, _ in EXCEPTIONS)
            for problem in [] if passed_over else self.description.problems(name, operation, status, content):
                self.found.append(f"{name} ({method} {path}) {status}: {problem}")
        return json.loads(content) if content.startswith((b"{", b"[")) else None


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def text(content):
    return base64.b64encode(content.encode()).decode()


def walk(ask):
    """Every operation once where it goes well, and where it does not."""
    demo, raw = "/repos/octo/demo", "/repos/octo/made"
    ask("GET", "/user", want=200)
    ask("GET", "/user", token=None, want=401)
    ask("GET", "/user", token="nobody", want=401)
    ask("GET", "/users/mona", want=200)
    ask("GET", "/users/octo", want=200)
    ask("GET", "/users/nobody", want=404)
    ask("GET", "/rate_limit", want=200)
    ask("GET", "/orgs/acme", want=200)
    ask("GET", "/user/repos?sort=created", want=200)
    ask("GET", "/user/repos?type=owner&visibility=all", want=422)
    ask("GET", "/users/mallory/repos", want=200)
    ask("GET", "/orgs/acme/repos", want=200)
    ask("POST", "/user/repos", {"name": "made", "auto_init": True, "description": "d"}, want=201)
    ask("POST", "/user/repos", {"name": "made"}, want=422)
    ask("POST", "/user/repos", {}, want=422)
    ask("POST", "/user/repos", {"name": "empty"}, want=201)
    ask("POST", "/orgs/acme/repos", {"name": "made"}, want=201)
    ask("POST", "/orgs/acme/repos", {"name": "x"}, token="test_token_user3", want=403)
    ask("GET", demo, want=200)
    ask("GET", "/repos/octo/nothing", want=404)
    ask("PATCH", demo, {"description": "new", "has_wiki": False}, want=200)
    ask("PATCH", demo, {"default_branch": "nothing"}, want=422)
    ask("POST", "/repos/mallory/lib/forks", {}, want=202)
    ask("GET", "/repos/mallory/lib/forks", want=200)
    ask("GET", "/repos/octo/lib", want=200)
    ask("GET", f"{demo}/collaborators", want=200)
    ask("GET", f"{demo}/topics", want=200)
    ask("PUT", f"{demo}/topics", {"names": ["a"]}, want=200)
    ask("GET", f"{demo}/languages", want=200)
    ask("GET", f"{demo}/contributors", want=200)
    ask("GET", f"{demo}/assignees", want=200)
    # contents
    file = ask("GET", f"{demo}/contents/README.md", want=200)
    ask("GET", f"{demo}/contents/src", want=200)
    ask("GET", f"{demo}/contents/nothing", want=404)
    ask("GET", f"{demo}/readme", want=200)
    ask("GET", "/repos/octo/empty/readme", want=404)
    ask("PUT", f"{demo}/contents/new.txt", {"message": "m", "content": text("x")}, want=201)
    ask("PUT", f"{demo}/contents/README.md", {"message": "m", "content": text("x"), "sha": file["sha"]}, want=200)
    ask("PUT", f"{demo}/contents/README.md", {"message": "m", "content": text("x"), "sha": file["sha"]}, want=409)
    ask("PUT", f"{demo}/contents/README.md", {"message": "m", "content": text("x")}, want=422)
    ask("PUT", f"{demo}/contents/README.md", {"message": "m", "content": text("x"), "branch": "nothing"}, want=404)
    new = ask("GET", f"{demo}/contents/new.txt", want=200)
    ask("DELETE", f"{demo}/contents/new.txt", {"message": "m", "sha": new["sha"]}, want=200)
    ask("DELETE", f"{demo}/contents/new.txt", {"message": "m", "sha": new["sha"]}, want=404)
    # git
    ask("GET", f"{demo}/branches", want=200)
    ask("GET", f"{demo}/branches/main", want=200)
    ask("GET", f"{demo}/branches/nothing", want=404)
    head = ask("GET", f"{demo}/git/ref/heads/main", want=200)["object"]["sha"]
    ask("GET", f"{demo}/git/ref/heads/nothing", want=404)
    ask("GET", f"{demo}/git/matching-refs/heads/", want=200)
    ask("POST", f"{demo}/git/refs", {"ref": "refs/heads/new", "sha": head}, want=201)
    ask("POST", f"{demo}/git/refs", {"ref": "refs/heads/new", "sha": head}, want=422)
    ask("POST", "/repos/octo/empty/git/refs", {"ref": "refs/heads/new", "sha": head}, want=409)
    tree = ask("GET", f"{demo}/git/trees/main?recursive=1", want=200)
    ask("GET", "/repos/octo/empty/git/trees/main", want=409)
    blob = ask("POST", f"{demo}/git/blobs", {"content": "hello"}, want=201)
    ask("GET", f"{demo}/git/blobs/{blob['sha']}", want=200)
    ask("GET", f"{demo}/git/blobs/{'f' * 40}", want=404)
    made = ask("POST", f"{demo}/git/trees", {"base_tree": tree["sha"], "tree": [{"path": "b.txt", "mode": "100644", "type": "blob", "sha": blob["sha"]}]}, want=201)
    ask("POST", f"{demo}/git/trees", {"tree": [{"path": "../b", "mode": "100644", "type": "blob", "content": "x"}]}, want=422)
    commit = ask("POST", f"{demo}/git/commits", {"message": "m", "tree": made["sha"], "parents": [head]}, want=201)
    ask("POST", f"{demo}/git/commits", {"message": "m", "tree": "f" * 40}, want=422)
    ask("GET", f"{demo}/git/commits/{commit['sha']}", want=200)
    ask("PATCH", f"{demo}/git/refs/heads/new", {"sha": commit["sha"]}, want=200)
    ask("PATCH", f"{demo}/git/refs/heads/new", {"sha": head}, want=422)
    ask("GET", f"{demo}/commits?sha=new", want=200)
    ask("GET", "/repos/octo/empty/commits", want=409)
    ask("GET", f"{demo}/commits/new", want=200)
    ask("GET", f"{demo}/commits/nothing", want=422)
    ask("GET", f"{demo}/compare/main...new", want=200)
    ask("GET", f"{demo}/compare/main...nothing", want=404)
    ask("POST", f"{demo}/statuses/{commit['sha']}", {"state": "success", "context": "ci"}, want=201)
    ask("GET", f"{demo}/commits/new/status", want=200)
    ask("GET", f"{demo}/commits/{commit['sha']}/statuses", want=200)
    ask("GET", f"{demo}/commits/{commit['sha']}/pulls", want=200)
    ask("POST", f"{demo}/merges", {"base": "main", "head": "new"}, want=201)
    ask("POST", f"{demo}/merges", {"base": "main", "head": "new"}, want=204)
    ask("POST", f"{demo}/merges", {"base": "main", "head": "shout"}, want=409)
    ask("POST", f"{demo}/merges", {"base": "nothing", "head": "shout"}, want=404)
    ask("DELETE", f"{demo}/git/refs/heads/new", want=204)
    ask("DELETE", f"{demo}/git/refs/heads/new", want=422)
    # issues
    ask("GET", f"{demo}/issues?state=all&per_page=100", want=200)
    ask("GET", f"{demo}/issues?state=nothing", want=422)
    ask("POST", f"{demo}/milestones", {"title": "v9", "due_on": "2026-05-01T00:00:00Z"}, want=201)
    ask("POST", f"{demo}/milestones", {"title": "v9"}, want=422)
    ask("GET", f"{demo}/milestones", want=200)
    ask("GET", f"{demo}/milestones/1", want=200)
    ask("PATCH", f"{demo}/milestones/1", {"state": "closed"}, want=200)
    issue = ask("POST", f"{demo}/issues", {"title": "t", "body": "b", "labels": ["bug", "fresh"], "assignees": ["mona"], "milestone": 2}, want=201)
    ask("POST", f"{demo}/issues", {"body": "b"}, want=422)
    ask("POST", f"{demo}/issues", {"title": "t", "assignees": ["mallory"]}, want=422)
    number = issue["number"]
    ask("GET", f"{demo}/issues/{number}", want=200)
    ask("GET", f"{demo}/issues/999", want=404)
    ask("PATCH", f"{demo}/issues/{number}", {"state": "closed", "state_reason": "duplicate"}, want=200)
    ask("PATCH", f"{demo}/issues/{number}", {"state": "open", "milestone": None}, want=200)
    comment = ask("POST", f"{demo}/issues/{number}/comments", {"body": "hello"}, want=201)
    ask("GET", f"{demo}/issues/{number}/comments", want=200)
    ask("GET", f"{demo}/issues/comments", want=200)
    ask("GET", f"{demo}/issues/comments/{comment['id']}", want=200)
    ask("PATCH", f"{demo}/issues/comments/{comment['id']}", {"body": "bye"}, want=200)
    ask("DELETE", f"{demo}/issues/comments/{comment['id']}", want=204)
    ask("POST", f"{demo}/issues/{number}/labels", {"labels": ["help wanted"]}, want=200)
    ask("GET", f"{demo}/issues/{number}/labels", want=200)
    ask("DELETE", f"{demo}/issues/{number}/labels/help%20wanted", want=200)
    ask("DELETE", f"{demo}/issues/{number}/labels/help%20wanted", want=404)
    ask("PUT", f"{demo}/issues/{number}/labels", {"labels": ["bug"]}, want=200)
    ask("POST", f"{demo}/issues/{number}/assignees", {"assignees": ["octo", "nobody"]}, want=201)
    ask("DELETE", f"{demo}/issues/{number}/assignees", {"assignees": ["octo"]}, want=200)
    ask("PUT", f"{demo}/issues/{number}/lock", {"lock_reason": "spam"}, want=204)
    ask("POST", f"{demo}/issues/{number}/comments", {"body": "x"}, token="test_token_user3", want=403)
    ask("DELETE", f"{demo}/issues/{number}/lock", want=204)
    ask("GET", f"{demo}/labels", want=200)
    ask("POST", f"{demo}/labels", {"name": "p0", "color": "ff0000", "description": "d"}, want=201)
    ask("POST", f"{demo}/labels", {"name": "p0", "color": "ff0000"}, want=422)
    ask("GET", f"{demo}/labels/p0", want=200)
    ask("PATCH", f"{demo}/labels/p0", {"new_name": "p1"}, want=200)
    ask("DELETE", f"{demo}/labels/p1", want=204)
    # pull requests
    ask("GET", f"{demo}/pulls?state=all", want=200)
    ask("PUT", f"{demo}/contents/n.txt", {"message": "m", "content": text("x"), "branch": "goodbye"}, want=201)
    ask("POST", f"{demo}/git/refs", {"ref": "refs/heads/pr", "sha": commit["sha"]}, want=201)
    ask("PUT", f"{demo}/contents/pr.txt", {"message": "m", "content": text("x\n"), "branch": "pr"}, want=201)
    pull = ask("POST", f"{demo}/pulls", {"title": "t", "head": "pr", "base": "main", "body": f"Fixes #{number}"}, want=201)
    ask("POST", f"{demo}/pulls", {"title": "t", "head": "pr", "base": "main"}, want=422)
    ask("POST", f"{demo}/pulls", {"title": "t", "base": "main"}, want=422)
    own = f"{demo}/pulls/{pull['number']}"
    for one in (21, 22, 23, 24):
        ask("GET", f"{demo}/pulls/{one}", want=200)
    ask("GET", own, want=200)
    ask("GET", f"{demo}/pulls/999", want=404)
    ask("PATCH", own, {"title": "new"}, want=200)
    ask("GET", f"{own}/files", want=200)
    ask("GET", f"{own}/commits", want=200)
    ask("GET", f"{own}/merge", want=404)
    ask("POST", f"{own}/requested_reviewers", {"reviewers": ["mona"]}, want=201)
    ask("GET", f"{own}/requested_reviewers", want=200)
    ask("POST", f"{own}/requested_reviewers", {"reviewers": ["mallory"]}, want=422)
    ask("POST", f"{own}/reviews", {"event": "APPROVE"}, want=422)
    ask("POST", f"{own}/reviews", {"event": "COMMENT", "body": "b", "comments": [{"path": "pr.txt", "line": 1, "body": "here"}]}, token="test_token_user2", want=200)
    ask("POST", f"{own}/reviews", {"event": "APPROVE"}, token="test_token_user2", want=200)
    pending = ask("POST", f"{own}/reviews", {"body": "later"}, token="test_token_user2", want=200)
    ask("POST", f"{own}/reviews/{pending['id']}/events", {"event": "COMMENT"}, token="test_token_user2", want=200)
    ask("GET", f"{own}/reviews", want=200)
    ask("GET", f"{own}/reviews/{pending['id']}", want=200)
    ask("POST", f"{own}/comments", {"path": "pr.txt", "line": 1, "body": "there", "commit_id": commit["sha"], "side": "RIGHT"}, want=201)
    ask("GET", f"{own}/comments", want=200)
    ask("PUT", f"{own}/merge", {"sha": "f" * 40}, want=409)
    ask("PUT", f"{demo}/pulls/22/merge", {}, want=405)
    ask("PUT", f"{own}/merge", {"merge_method": "rebase"}, want=200)
    ask("GET", f"{own}/merge", want=204)
    ask("PATCH", own, {"state": "open"}, want=422)
    ask("GET", own, want=200)
    # search
    ask("GET", "/search/repositories?q=demo", want=200)
    ask("GET", "/search/repositories?q=", want=422)
    ask("GET", "/search/issues?q=crash+is:issue+in:title", want=200)
    ask("GET", "/search/issues?q=repo:octo/nothing", want=422)
    ask("GET", "/search/code?q=greet+repo:octo/demo", want=200)
    ask("GET", "/search/code?q=greet", token=None, want=401)
    # releases, actions, stars, gists
    ask("GET", f"{demo}/releases", want=200)
    release = ask("POST", f"{demo}/releases", {"tag_name": "v2", "name": "Two", "body": "b"}, want=201)
    ask("POST", f"{demo}/releases", {"tag_name": "v2"}, want=422)
    ask("GET", f"{demo}/releases/latest", want=200)
    ask("GET", f"{raw}/releases/latest", want=404)
    ask("GET", f"{demo}/releases/tags/v2", want=200)
    ask("GET", f"{demo}/releases/{release['id']}", want=200)
    ask("PATCH", f"{demo}/releases/{release['id']}", {"prerelease": True}, want=200)
    ask("DELETE", f"{demo}/releases/{release['id']}", want=204)
    ask("GET", f"{demo}/tags", want=200)
    workflow = "name: CI\non:\n  workflow_dispatch:\n"
    ask("PUT", f"{demo}/contents/.github/workflows/ci.yml", {"message": "m", "content": text(workflow)}, want=201)
    ask("GET", f"{demo}/actions/workflows", want=200)
    ask("GET", f"{demo}/actions/workflows/ci.yml", want=200)
    ask("POST", f"{demo}/actions/workflows/ci.yml/dispatches", {"ref": "main"}, want=204)
    run = ask("POST", f"{demo}/actions/workflows/ci.yml/dispatches", {"ref": "main", "return_run_details": True}, want=200)
    ask("GET", f"{demo}/actions/runs", want=200)
    ask("GET", f"{demo}/actions/runs/{run['workflow_run_id']}", want=200)
    ask("PUT", "/user/starred/mallory/lib", want=204)
    ask("GET", "/user/starred/mallory/lib", want=204)
    ask("GET", "/user/starred", want=200)
    ask("DELETE", "/user/starred/mallory/lib", want=204)
    ask("GET", "/user/starred/mallory/lib", want=404)
    gist = ask("POST", "/gists", {"files": {"a.md": {"content": "x"}}, "public": True, "description": "d"}, want=201)
    ask("GET", f"/gists/{gist['id']}", want=200)
    ask("GET", "/gists", want=200)
    ask("PATCH", f"/gists/{gist['id']}", {"files": {"b.txt": {"content": "y"}}}, want=200)
    ask("DELETE", f"/gists/{gist['id']}", want=204)
    ask("GET", f"/gists/{gist['id']}", want=404)
    ask("PATCH", raw, {"name": "renamed"}, want=200)
    ask("GET", raw, want=301)
    ask("DELETE", raw, want=307)
    ask("DELETE", "/repos/octo/renamed", want=204)
    ask("DELETE", "/repos/mallory/lib", want=403)


def main():
    base, path = sys.argv[1:3]
    ask = Client(base, Description(path))
    # A check that cannot fail is none: an empty object is no repository.
    name, operation = ask.description.find("GET", "/repos/octo/demo")
    assert name == "repos/get" and ask.description.problems(name, operation, 200, b"{}"), "the description is not read as it should be"
    walk(ask)
    for line in ask.found:
        print(line)
    print(f"{ask.checked} answers of {len(ask.seen)} operations, {len(ask.found)} do not fit, {len(EXCEPTIONS)} exceptions")
    sys.exit(bool(ask.found))


if __name__ == "__main__":
    main()
