import os
import re
import subprocess
import sys

import pytest

import gradus
from conftest import ROOT


def test_the_version_is_that_of_the_workspace():
    manifest = (ROOT / "Cargo.toml").read_text()
    assert gradus.__version__ == re.search(r'^version = "([^"]+)"', manifest, re.M).group(1)


def test_the_program_has_the_same_version():
    printed = subprocess.run([sys.executable, "-m", "gradus", "--version"], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["gradus", gradus.__version__]


def test_python_m_gradus_passes_arguments_and_exit_code_on():
    ended = subprocess.run([sys.executable, "-m", "gradus", "traces", "missing.bin"], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "missing.bin" in ended.stderr


def test_the_variable_names_the_program(tmp_path, monkeypatch):
    program = tmp_path / "gradus"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("GRADUS_BIN", str(program))
    with pytest.raises(gradus.GradusError, match="not a program"):
        gradus.find_gradus_bin()
    program.chmod(0o755)
    assert gradus.find_gradus_bin() == str(program)


def test_the_program_is_found_beside_the_interpreter(tmp_path, monkeypatch):
    import sysconfig

    monkeypatch.delenv("GRADUS_BIN", raising=False)
    program = tmp_path / "gradus"
    program.write_text("#!/bin/sh\n")
    found = sysconfig.get_path
    monkeypatch.setattr(sysconfig, "get_path", lambda name, *rest, **more: str(tmp_path) if name == "scripts" and not rest and not more else found(name, *rest, **more))
    assert gradus.find_gradus_bin() == str(program)


def test_a_missing_program_says_what_to_do(tmp_path, monkeypatch):
    import sysconfig

    monkeypatch.delenv("GRADUS_BIN", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda *_, **__: str(tmp_path))
    monkeypatch.setattr("gradus._binary.__file__", str(tmp_path / "a" / "b" / "c" / "d" / "e.py"))
    with pytest.raises(gradus.GradusError, match="pip install gradus"):
        gradus.find_gradus_bin()
    ended = subprocess.run([sys.executable, "-m", "gradus"], env={**os.environ, "GRADUS_BIN": str(tmp_path / "no")}, capture_output=True, text=True)
    assert ended.returncode == 2 and "not a program" in ended.stderr
