"""Seven GitHub tools, as plain functions: the type hints and docstrings are what the model sees.

They work on github.com, on GitHub Enterprise and on `gradus simulate`; only GITHUB_API_URL and GITHUB_TOKEN differ.
"""
import base64
import os

import requests

API = os.environ.get("GITHUB_API_URL", "https://api.github.com")


def _github(method: str, path: str, **options):
    headers = {"Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}", "Accept": "application/vnd.github+json"}
    response = requests.request(method, f"{API}/{path}", headers=headers, timeout=30, **options)
    if not response.ok:
        raise RuntimeError(f"{response.status_code} {response.json()['message']}")
    return response.json()


def list_my_repos() -> str:
    """List the repositories of the signed-in user."""
    return "\n".join(f"{repo['full_name']}: {repo['description']}" for repo in _github("GET", "user/repos"))


def list_issues(repo: str, state: str = "open") -> str:
    """List the issues of a repository (OWNER/NAME). The state is open, closed or all."""
    issues = _github("GET", f"repos/{repo}/issues", params={"state": state, "per_page": 100})
    return "\n".join(f"#{issue['number']} {issue['title']}" for issue in issues if "pull_request" not in issue)


def open_issue(repo: str, title: str, body: str) -> str:
    """Open an issue in a repository (OWNER/NAME)."""
    issue = _github("POST", f"repos/{repo}/issues", json={"title": title, "body": body})
    return f"opened #{issue['number']}"


def comment_on_issue(repo: str, number: int, body: str) -> str:
    """Comment on an issue of a repository (OWNER/NAME)."""
    _github("POST", f"repos/{repo}/issues/{number}/comments", json={"body": body})
    return f"commented on #{number}"


def close_issue(repo: str, number: int) -> str:
    """Close an issue of a repository (OWNER/NAME)."""
    _github("PATCH", f"repos/{repo}/issues/{number}", json={"state": "closed"})
    return f"closed #{number}"


def read_file(repo: str, path: str) -> str:
    """Read a file of a repository (OWNER/NAME)."""
    return base64.b64decode(_github("GET", f"repos/{repo}/contents/{path}")["content"]).decode()


def commit_file(repo: str, path: str, content: str, message: str) -> str:
    """Create or update a file of a repository (OWNER/NAME) in one commit."""
    data = {"message": message, "content": base64.b64encode(content.encode()).decode()}
    try:
        data["sha"] = _github("GET", f"repos/{repo}/contents/{path}")["sha"]
    except RuntimeError as error:
        if not str(error).startswith("404"):
            raise
    return "committed " + _github("PUT", f"repos/{repo}/contents/{path}", json=data)["commit"]["sha"]


TOOLS = [list_my_repos, list_issues, open_issue, comment_on_issue, close_issue, read_file, commit_file]
