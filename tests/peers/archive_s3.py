"""Archives in S3: written to and read from a real server, with the verdicts of a folder; killed while writing; and everything that can be wrong
about a bucket, its keys and its objects. Run by run.py in an environment that has the server and boto3.

  python archive_s3.py GRADUS

Prints the peak memory of writing and reading. Exits with 1 and a line for each thing that is wrong.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

from archive_traces import make_export, make_spans
from postgres_cluster import free_port, wait_for
from s3_server import KEY, REGION, SECRET, S3Server

BUCKET = "traces"
COMPARED = ["trajectory_id", "step_index", "evaluator", "outcome", "label", "score", "explanation", "reason", "rule"]
SHARDS, DAYS = 4, 3


class Failure(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failure(text)


def environment(server, **changes):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "GRADUS_", "OPENAI_", "ANTHROPIC_")) and "proxy" not in key.lower()}
    own = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION, "AWS_ENDPOINT_URL": server.endpoint, **changes}
    return {**kept, **{key: value for key, value in own.items() if value is not None}}


class Gradus:
    """The program in a folder, with the credentials of a server."""

    def __init__(self, program, folder, server):
        self.program, self.folder, self.server, self.number = program, folder, server, 0

    def start(self, *words, **changes):
        command = [self.program, *map(str, words)]
        return subprocess.Popen(command, cwd=self.folder, env=environment(self.server, **changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self, *words, code=0, **changes):
        process = self.start(*words, **changes)
        out, err = process.communicate(timeout=900)
        expect(SECRET not in out + err, f"a secret was printed: {words}")
        expect(process.returncode == code, f"{words}: exit code {process.returncode} instead of {code}: {(out + err).strip()[-600:]}")
        return err

    def refuse(self, message, *words, **changes):
        """It exits with 2 and one line on standard error, without counting a hint."""
        lines = [line for line in self.run(*words, code=2, **changes).splitlines() if "hint:" not in line]
        expect(any(message in line for line in lines), f"{words}: {lines} instead of {message!r}")
        return lines

    def verdicts(self, source, code=0):
        self.number += 1
        path = pathlib.Path(self.folder, f"verdicts-{self.number}.jsonl")
        self.run("eval", source, "-q", "--judge", "offline", "--jsonl", path, "--state-dir", f"state-{self.number}", code=code)
        rows = map(json.loads, path.read_text().splitlines())
        return sorted(json.dumps([row.get(name) for name in COMPARED]) for row in rows)


def peak_mib(program, *words):
    """The largest resident size of one call, in MiB."""
    # Of all children that were waited for, so each call needs a process of its own around it.
    script = "import resource, subprocess, sys; ended = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); print(ended.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    ran = subprocess.run([sys.executable, "-c", script, program.program, *map(str, words)], cwd=program.folder, env=environment(program.server), capture_output=True, text=True, timeout=900)
    code, peak = ran.stdout.split()
    expect(code == "0", f"{words}: exit code {code}: {ran.stderr[-600:]}")
    return int(peak) / 1024


def write_exports(path, traces, noise=0, days=DAYS):
    """Traces as OTLP lines. `noise` letters of each cannot be compressed, so that files become large."""
    letters = random.Random(7)
    with open(path, "w") as file:
        for number in range(traces):
            spans = make_spans(number, days=days)
            if noise:
                spans[0]["attributes"].append({"key": "noise", "value": {"stringValue": letters.randbytes(noise // 2).hex()}})
            file.write(json.dumps(make_export(spans)) + "\n")
    return path


def check_same_as_a_folder(gradus, folder, server):
    exports = write_exports(folder / "exports.jsonl", 240)
    gradus.run("store", "archive", "archive", exports, "--shards", SHARDS)
    gradus.run("store", "archive", f"s3://{BUCKET}/november", exports, "--shards", SHARDS)
    local = {str(path.relative_to(folder / "archive")): path.read_bytes() for path in (folder / "archive").rglob("*") if path.is_file()}
    expect(set(local) == set(server.list(BUCKET, "november")), "the bucket has other objects than the folder has files")
    expect(len(local) == SHARDS * DAYS + 1, f"{len(local)} files")
    for name, content in local.items():
        expect(server.read(BUCKET, f"november/{name}") == content, f"{name} differs from the file of the folder")
    wanted = gradus.verdicts("archive")
    expect(len(wanted) > 240 and wanted == gradus.verdicts(exports), "the folder has other verdicts than its source")
    expect(gradus.verdicts(f"s3://{BUCKET}/november/") == wanted, "S3 has other verdicts than the folder")
    # There and back: an archive is a source of archives.
    gradus.run("store", "archive", "copy", f"s3://{BUCKET}/november", "--shards", SHARDS)
    expect((folder / "copy" / "manifest.json").read_bytes() == local["manifest.json"], "a copy of an archive differs")


def check_interruption(gradus, folder, server):
    """Killed when some parts are stored: no manifest, and the same command completes it."""
    exports = write_exports(folder / "large.jsonl", 600, noise=120_000)
    target, stale = f"s3://{BUCKET}/killed", "spans/v1/date=2020-01-01/shard=00/part-0.parquet"
    server.write(BUCKET, f"killed/{stale}", b"of another run")
    words = ["store", "archive", target, exports, "--shards", SHARDS]
    process = gradus.start(*words)
    wait_for(lambda: len(server.list(BUCKET, "killed")) > 3 or process.poll() is not None, "some parts to be stored")
    process.kill()
    process.communicate()
    before = server.list(BUCKET, "killed")
    expect("manifest.json" not in before and len(before) < SHARDS * DAYS, f"it was not killed in the middle: {sorted(before)}")
    gradus.refuse("writing it was interrupted", "eval", target, "--judge", "offline")
    gradus.run(*words)
    after = server.list(BUCKET, "killed")
    expect("manifest.json" in after and stale not in after and len(after) == SHARDS * DAYS + 1, f"not completed: {sorted(after)}")
    kept = [path for path in before if path in after and before[path] == after[path]]
    expect(len(kept) >= len(before) - 2, f"{len(kept)} of {len(before)} parts were not uploaded again")
    expect(gradus.verdicts(target) == gradus.verdicts(exports), "the completed archive has other verdicts")
    gradus.refuse("there is an archive already", *words)


def check_bad_locations(gradus, folder, server):
    exports = folder / "exports.jsonl"
    nowhere = f"http://127.0.0.1:{free_port()}"
    archive, evaluate = ["store", "archive", f"s3://{BUCKET}/new", exports], ["eval", f"s3://{BUCKET}/november", "--judge", "offline"]
    for words in (archive, evaluate):
        gradus.refuse("access denied (SignatureDoesNotMatch)", *words, AWS_SECRET_ACCESS_KEY="another-secret-9876543210")
        gradus.refuse("access denied (InvalidAccessKeyId)", *words, AWS_ACCESS_KEY_ID="unknown-key")
        gradus.refuse(f"nothing answers at {nowhere}", *words, AWS_ENDPOINT_URL=nowhere)
        gradus.refuse("no credentials", *words, AWS_SECRET_ACCESS_KEY=None)
        gradus.refuse("http://s3.example.org is not encrypted", *words, AWS_ENDPOINT_URL="http://s3.example.org")
        gradus.refuse("is not an http or https address", *words, AWS_ENDPOINT_URL="s3.example.org")
        missing = [word.replace(BUCKET, "no-such-bucket") if isinstance(word, str) else word for word in words]
        gradus.refuse("s3://no-such-bucket: there is no such bucket", *missing)
    gradus.refuse("not an archive: there is no manifest.json", "eval", f"s3://{BUCKET}/empty", "--judge", "offline")
    for line in gradus.refuse("not an address in S3", "eval", f"s3://somebody:{SECRET[::-1]}@{BUCKET}/november", "--judge", "offline"):
        expect(SECRET[::-1] not in line, "the key of an address was printed")
    server.write(BUCKET, "full/notes.txt", b"mine")
    gradus.refuse("it is not empty", "store", "archive", f"s3://{BUCKET}/full", exports)
    gradus.refuse("there is an archive already", "store", "archive", f"s3://{BUCKET}/november", exports)
    expect(not server.list(BUCKET, "new"), "a refused command left objects")


def check_damage(gradus, folder, server):
    gradus.run("store", "archive", f"s3://{BUCKET}/damaged", folder / "exports.jsonl", "--shards", SHARDS)
    parts = [part["path"] for part in json.loads(server.read(BUCKET, "damaged/manifest.json"))["parts"]]
    content = bytearray(server.read(BUCKET, f"damaged/{parts[0]}"))
    content[len(content) // 2] ^= 1
    server.write(BUCKET, f"damaged/{parts[0]}", bytes(content))
    server.client.delete_object(Bucket=BUCKET, Key=f"damaged/{parts[1]}")
    source = f"s3://{BUCKET}/damaged"
    lines = gradus.refuse(f"{source}/{parts[0]}: its checksum is not that of the manifest", "eval", source, "--judge", "offline", "--jsonl", folder / "rest.jsonl")
    expect(any(f"{source}/{parts[1]}: the manifest names this part, and it is missing" in line for line in lines), f"{lines}")
    expect(len((folder / "rest.jsonl").read_text().splitlines()) > 100, "the other shards were not graded")
    server.write(BUCKET, "damaged/manifest.json", b"{}")
    gradus.refuse("not a manifest of an archive", "eval", source, "--judge", "offline")


def measure_memory(gradus, folder, server):
    """Four times as many parts of the same size must not take four times the memory; the figures are printed, not judged."""
    for traces in (200, 800):
        exports = write_exports(folder / f"memory-{traces}.jsonl", traces, noise=400_000, days=traces // 100)
        size = exports.stat().st_size >> 20
        target = f"s3://{BUCKET}/memory-{traces}"
        writing = peak_mib(gradus, "store", "archive", target, exports, "--shards", 1)
        parts = json.loads(server.read(BUCKET, f"memory-{traces}/manifest.json"))["parts"]
        reading = peak_mib(gradus, "eval", target, "-q", "--judge", "offline", "--jsonl", os.devnull, "--state-dir", f"memory-{traces}")
        largest = max(part["bytes"] for part in parts) >> 20
        # The tag of an object that was uploaded in chunks ends with their number.
        tag = server.client.head_object(Bucket=BUCKET, Key=f"memory-{traces}/{parts[0]['path']}")["ETag"]
        expect("-" in tag, f"parts of {largest} MiB were not uploaded in chunks: {tag}")
        print(f"archive of {size} MiB in {len(parts)} parts of at most {largest} MiB: peak memory {writing:.0f} MiB writing, {reading:.0f} MiB reading", flush=True)


def main():
    failures = 0
    checks = [check_same_as_a_folder, check_interruption, check_bad_locations, check_damage, measure_memory]
    with tempfile.TemporaryDirectory() as folder, S3Server() as server:
        server.client.create_bucket(Bucket=BUCKET)
        gradus = Gradus(os.path.abspath(sys.argv[1]), folder, server)
        for check in checks:
            try:
                check(gradus, pathlib.Path(folder), server)
            except (Failure, AssertionError, subprocess.SubprocessError, OSError) as error:
                print(f"{check.__name__}: {error}", flush=True)
                failures += 1
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
