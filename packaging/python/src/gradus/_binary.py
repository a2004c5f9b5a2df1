"""Finds the `gradus` program and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]

#: Names the program to run instead of the one that was installed with this package.
BINARY_VARIABLE = "GRADUS_BIN"

BAD_INPUT = 2
GATE_FAILED = 3
NOTHING_FOUND = 4
NOT_WRITTEN = 5
GATE_INCOMPLETE = 6


class GradusError(Exception):
    """The program or the server refused a request, or could not be run."""

    def __init__(self, message: str, exit_code: Optional[int] = None, status: Optional[int] = None) -> None:
        super().__init__(message)
        #: What the program printed, without the progress of the run.
        self.message = message
        #: The exit code of the program; None if it did not run.
        self.exit_code = exit_code
        #: The HTTP status of the server; None if no server answered.
        self.status = status


def find_gradus_bin() -> str:
    """The path of the `gradus` program that belongs to this package.

    `GRADUS_BIN` wins. Otherwise the folders are searched to which installers write scripts, and PATH at last.
    """
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        if os.access(named, os.X_OK) and os.path.isfile(named):
            # Tests change the working directory.
            return os.path.abspath(named)
        raise GradusError(f"{BINARY_VARIABLE}: {named}: it is not a program")
    name = "gradus" + (sysconfig.get_config_var("EXE") or "")
    searched = []
    for folder in _script_folders():
        path = Path(folder, name)
        if path.is_file():
            return str(path)
        searched.append(str(path.parent))
    found = shutil.which(name)
    if found:
        return found
    raise GradusError(f"the gradus program was not found in: {', '.join(searched)}\nhint: install the wheel with `pip install gradus`, or name the program in {BINARY_VARIABLE}")


def _script_folders() -> Iterator[str]:
    yield sysconfig.get_path("scripts")
    # A base interpreter whose packages a virtual environment sees.
    yield sysconfig.get_path("scripts", vars={"base": sys.base_prefix})
    package = Path(__file__).resolve().parent
    # `pip install --target` and `--prefix` put scripts beside the packages, or some levels above them.
    yield str(package.parent / "bin")
    if len(package.parents) > 3:
        yield str(package.parents[3] / ("Scripts" if os.name == "nt" else "bin"))
    yield sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user") if sys.version_info >= (3, 10) else "nt_user" if os.name == "nt" else "posix_user")
    # The isolated environment in which pip builds packages keeps its scripts in an overlay on PATH.
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        parts = Path(entry).parts
        if len(parts) >= 3 and parts[-2] == "overlay" and parts[-3].startswith("pip-build-env-"):
            yield entry


def run_gradus(arguments: Sequence[str], *, stdin: Optional[bytes] = None, cwd: Optional[PathLike] = None, environment: Optional[Mapping[str, str]] = None, accepted: Sequence[int] = (0,)) -> "subprocess.CompletedProcess[bytes]":
    """Runs the program to its end. An exit code that is not accepted becomes a `GradusError` with what was printed."""
    command = [find_gradus_bin(), *arguments]
    # Without input the program must not wait for that of a notebook or a test.
    given: Dict[str, Any] = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    try:
        ended: "subprocess.CompletedProcess[bytes]" = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=None if environment is None else dict(environment), **given)
    except OSError as error:
        raise GradusError(f"{command[0]}: cannot be run: {error}") from error
    if ended.returncode not in accepted:
        complaint = ended.stderr.decode("utf-8", "replace").strip() or f"gradus {' '.join(arguments[:1])} ended with exit code {ended.returncode}"
        raise GradusError(complaint, exit_code=ended.returncode)
    return ended
