import pathlib
import sys

import pytest

pytest_plugins = ["pytester"]

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parents[2]
sys.path.insert(0, str(TESTS))


@pytest.fixture
def captures():
    """Traces that a real LlamaIndex agent has sent."""
    return ROOT / "fixtures" / "captures" / "llamaindex-react"


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Runs of `gradus eval` are kept in the current folder."""
    monkeypatch.chdir(tmp_path)
