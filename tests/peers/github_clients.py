#!/usr/bin/env python3
"""Real GitHub clients against a real `gradus simulate`, and its answers against GitHub's own description.

  tests/peers/github_clients.py GRADUS

  - PyGithub: 70 checks (agents/github_pygithub.py), also under the prefix of GitHub Enterprise;
  - octokit.js: a working day (agents/github_octokit.mjs);
  - `gh api`, the one that is installed or Debian's, unpacked below the cache folder;
  - the description in npm's @octokit/openapi: every answer to github_openapi.py fits it.

octocrab is in crates/github-sim/tests/simulator/octocrab.rs. run.py runs this too, and says there what is skipped and why.
"""
import contextlib
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile

from collector import checked, clean_environment
from run import CACHE, HERE, NotInstalled, finish, python_for, run_checks

PYGITHUB = ["PyGithub==2.10.0", "requests==2.32.5"]
JSONSCHEMA = ["jsonschema==4.25.1"]
NODE_PACKAGES = {"@octokit/rest": "22.0.1"}
DESCRIPTION = {"@octokit/openapi": "23.0.2"}
TOKEN = "test_token_user1"


@contextlib.contextmanager
def simulator(gradus, seed):
    """Its address; it must end well when told to."""
    process = subprocess.Popen([gradus, "simulate", "--port", "0", "--seed", seed], stdout=subprocess.PIPE, text=True, env=clean_environment())
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        status = process.wait(120)
        process.stdout.close()
    if status != 0:
        raise RuntimeError(f"gradus simulate ended with status {status}")


def run(command, extra=None, **options):
    ran = subprocess.run(command, env=clean_environment(**(extra or {})), capture_output=True, text=True, timeout=900, **options)
    return ran.returncode, (ran.stdout + ran.stderr).strip().splitlines()


@checked
def pygithub(gradus, prefix):
    python = python_for("github-pygithub", PYGITHUB)
    with simulator(gradus, "w0") as url:
        status, lines = run([python, HERE / "agents" / "github_pygithub.py", "--base-url", url + prefix, "--token", TOKEN])
    failed = [line for line in lines if not line.startswith("PASS")]
    return [] if status == 0 and "70 pass, 0 fail, 0 skip" in lines[-1] else failed[-20:]


def npm_folder(name, packages):
    """A folder with these packages from npm, made once."""
    if not shutil.which("node") or not shutil.which("npm"):
        raise NotInstalled("there is no node or no npm")
    folder = CACHE / f"peer-{name}"
    made, wanted = folder / "packages.txt", json.dumps(packages)
    if not (made.exists() and made.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": packages}))
        npm = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"], cwd=folder, capture_output=True, text=True)
        if npm.returncode != 0:
            raise NotInstalled((npm.stderr.strip().splitlines() or ["npm failed"])[-1])
        made.write_text(wanted)
    return folder


@checked
def octokit(gradus):
    folder = npm_folder("github-octokit", NODE_PACKAGES)
    # Modules are looked for beside the script.
    script = folder / "github_octokit.mjs"
    shutil.copyfile(HERE / "agents" / "github_octokit.mjs", script)
    with simulator(gradus, "w0") as url:
        status, lines = run(["node", script, url, TOKEN])
    return [] if status == 0 else lines[-20:]


def gh_command():
    if shutil.which("gh"):
        return shutil.which("gh")
    folder = CACHE / "peer-github-gh"
    if not (folder / "usr/bin/gh").exists():
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise NotInstalled("there is no gh, and no apt-get to get it with")
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["apt-get", "download", "gh"], cwd=folder, capture_output=True, text=True)
        packages = sorted(folder.glob("gh_*.deb"))
        if got.returncode != 0 or not packages:
            raise NotInstalled((got.stderr.strip().splitlines() or ["apt-get failed"])[-1])
        subprocess.run(["dpkg-deb", "-x", packages[-1], folder], check=True)
    return folder / "usr/bin/gh"


@checked
def gh(gradus):
    command = gh_command()
    found = []
    with simulator(gradus, "w2") as url, tempfile.TemporaryDirectory() as folder:
        def api(*arguments):
            # It wants a token for github.com before it talks to anyone; the header is what the simulator gets.
            extra = {"GH_TOKEN": TOKEN, "GH_CONFIG_DIR": folder, "GH_NO_UPDATE_NOTIFIER": "1"}
            status, lines = run([command, "api", "-H", f"Authorization: Bearer {TOKEN}", *arguments], extra, cwd=folder)
            return status, "\n".join(lines)

        for arguments, wanted in [
            ((f"{url}/user", "--jq", ".login"), (0, "octo")),
            ((f"{url}/api/v3/repos/octo/demo", "--jq", ".default_branch"), (0, "main")),
            ((f"{url}/repos/octo/demo/issues", "--method", "POST", "-f", "title=From gh", "--jq", ".number"), (0, "29")),
            ((f"{url}/repos/octo/demo/issues?state=all&per_page=10", "--paginate", "--jq", "length"), (0, "10\n10\n9")),
        ]:
            got = api(*arguments)
            found += [] if got == wanted else [f"gh api {arguments}: {got} instead of {wanted}"]
        status, text = api(f"{url}/repos/octo/nothing")
        found += [] if status == 1 and "Not Found" in text else [f"a repository that is not there: {status} {text}"]
    return found


@checked
def description(gradus):
    python = python_for("github-jsonschema", JSONSCHEMA)
    folder = npm_folder("github-openapi", DESCRIPTION)
    path = folder / "node_modules/@octokit/openapi/generated/api.github.com.json"
    with simulator(gradus, "w3") as url:
        status, lines = run([python, "-W", "ignore", HERE / "github_openapi.py", url, path])
    return [] if status == 0 else [line[:300] for line in lines[-30:]]


@checked
def start(gradus):
    """The processor time of a start and an end, the best of some tries: how long they take is the machine's business."""
    best = min(started(gradus, seed) for seed in ("w0",) for _ in range(10))
    return [] if best < 0.05 else [f"it takes {best * 1000:.0f} ms of processor time to start"]


def started(gradus, seed):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    with simulator(gradus, seed):
        pass
    return used() - before


def main():
    gradus = os.path.abspath(sys.argv[1])
    checks = {
        "PyGithub": functools.partial(pygithub, gradus, ""),
        "PyGithub, Enterprise": functools.partial(pygithub, gradus, "/api/v3"),
        "octokit.js": functools.partial(octokit, gradus),
        "gh api": functools.partial(gh, gradus),
        "GitHub's description": functools.partial(description, gradus),
        "simulate, start": functools.partial(start, gradus),
    }
    finish(*run_checks(checks))


if __name__ == "__main__":
    main()
