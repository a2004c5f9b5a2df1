"""`gradus store archive` and archives as sources, with the real program."""

import json
import pathlib
import subprocess

import pytest

import gradus
from conftest import ROOT
from test_batches import comparable

from archive_traces import make_exports  # the path is set by test_batches

CAPTURES = ROOT / "fixtures" / "captures"


def run(*words, code=0):
    ended = subprocess.run([gradus.find_gradus_bin(), *map(str, words)], capture_output=True, text=True)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended


def verdicts(source):
    return comparable(verdict.raw for verdict in gradus.evaluate(source).verdicts)


@pytest.fixture
def exports(tmp_path):
    path = tmp_path / "exports.jsonl"
    path.write_text("\n".join(make_exports(60, days=3)) + "\n")
    return path


@pytest.fixture
def archive(exports, tmp_path):
    run("store", "archive", tmp_path / "archive", exports, "--shards", 4)
    return tmp_path / "archive"


def parts_of(manifest):
    return [part["path"] for part in json.loads(manifest)["parts"]]


def parts(archive):
    return json.loads((archive / "manifest.json").read_text())["parts"]


def test_an_archive_has_the_verdicts_of_its_source(exports, archive):
    manifest = json.loads((archive / "manifest.json").read_text())
    assert (manifest["traces"], manifest["records"], manifest["shards"]) == (60, 180, 4)
    assert {part["date"] for part in manifest["parts"]} == {"2026-11-17", "2026-11-18", "2026-11-19"}
    assert sorted(str(path.relative_to(archive)) for path in archive.rglob("*.parquet")) == sorted(part["path"] for part in manifest["parts"])
    assert verdicts(archive) == verdicts(exports)


# The traces of the second are linked: one trace for each model call. The third has its messages in log records.
@pytest.mark.parametrize("name", ["llamaindex-react", "plain-openai-responses-nosession", "plain-openai-v2", "langgraph-react"])
def test_traces_that_belong_together_stay_together(name, tmp_path):
    source = CAPTURES / name
    run("store", "archive", tmp_path / "archive", source, "--shards", 8)
    assert verdicts(tmp_path / "archive") == verdicts(source)


def test_a_store_is_archived_with_its_projects(exports, tmp_path):
    with subprocess.Popen([gradus.find_gradus_bin(), "serve", "--ephemeral"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        address = json.loads(server.stdout.readline())["http"]
        client = gradus.Client(address)
        for line in exports.read_text().splitlines():
            client.request("POST", "/v1/traces", body=line.encode())
        client.settle()
        run("store", "archive", tmp_path / "archive", f"gradus://{address.removeprefix('http://')}")
        server.stdin.close()
    assert verdicts(tmp_path / "archive") == verdicts(exports)


def test_rows_are_a_table_for_other_engines(archive):
    parquet = pytest.importorskip("pyarrow.parquet")
    for part in parts(archive):
        rows = parquet.read_table(archive / part["path"]).to_pylist()
        assert [row["group_id"] for row in rows] == sorted(row["group_id"] for row in rows)
        assert len(rows) == part["traces"]


def test_an_archive_does_not_replace_anything(archive, exports, tmp_path):
    assert "there is an archive already" in run("store", "archive", archive, exports, code=2).stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    assert "it is not empty" in run("store", "archive", tmp_path / "full", exports, code=2).stderr
    assert not (tmp_path / "full" / "manifest.json").exists()


def test_half_an_archive_is_refused(archive):
    (archive / "manifest.json").unlink()
    ended = run("eval", archive, "--judge", "offline", code=2)
    assert "writing it was interrupted" in ended.stderr


def test_an_interrupted_archive_is_completed(archive, exports):
    manifest, before = archive / "manifest.json", (archive / "manifest.json").read_bytes()
    manifest.unlink()
    first = archive / parts_of(before)[0]
    first.write_bytes(b"half")
    stale = archive / "spans/v1/date=2020-01-01/shard=00/part-0.parquet"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(b"of another run")
    run("store", "archive", archive, exports, "--shards", 4)
    assert manifest.read_bytes() == before and not stale.exists()
    assert verdicts(archive) == verdicts(exports)


def test_an_archive_is_a_source_of_archives(archive, tmp_path):
    run("store", "archive", tmp_path / "copy", archive, "--shards", 4)
    assert (tmp_path / "copy" / "manifest.json").read_bytes() == (archive / "manifest.json").read_bytes()


def test_a_damaged_part_is_named_and_the_others_are_read(archive):
    first, second = (archive / part["path"] for part in parts(archive)[:2])
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(bytes(data))
    second.unlink()
    ended = run("eval", archive, "--judge", "offline", code=2)
    assert f"{first}: its checksum is not that of the manifest" in ended.stderr
    assert f"{second}: the manifest names this part, and it is missing" in ended.stderr
    assert "trajectories" in ended.stdout


@pytest.mark.parametrize(("change", "message"), [({"version": 9}, "is newer than this program"), ({"parts": 7}, "not a manifest"), ({"format": "other"}, "not a manifest")])
def test_a_manifest_that_is_no_manifest(archive, change, message):
    path = archive / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert message in run("eval", archive, "--judge", "offline", code=2).stderr


def test_a_manifest_cannot_name_files_elsewhere(archive):
    path = archive / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["parts"][0]["path"] = "../elsewhere.parquet"
    path.write_text(json.dumps(manifest))
    assert "not a path below the archive" in run("eval", archive, "--judge", "offline", code=2).stderr


def test_a_source_that_cannot_be_read_leaves_no_archive(tmp_path):
    ended = run("store", "archive", tmp_path / "archive", tmp_path / "missing.jsonl", code=2)
    assert "missing.jsonl" in ended.stderr
    assert not pathlib.Path(tmp_path, "archive", "manifest.json").exists()
