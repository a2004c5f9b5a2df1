"""Archives whose bytes depend on their contents alone: names are sorted, owners and times are fixed."""
import gzip
import hashlib
import io
import os
import subprocess
import tarfile
import time
import zipfile

# 9 for releases; tests that pack large programs set less.
compression_level = 9
# Zip cannot express earlier times.
ZIP_EPOCH = 315_532_800


def source_date_epoch(root):
    """SOURCE_DATE_EPOCH, otherwise the time of the commit, so that the same commit gives the same archives."""
    named = os.environ.get("SOURCE_DATE_EPOCH")
    if named:
        return int(named)
    found = subprocess.run(["git", "-C", root, "log", "-1", "--format=%ct"], capture_output=True, text=True)
    return int(found.stdout) if found.returncode == 0 and found.stdout.strip() else ZIP_EPOCH


def write_tar_gz(path, entries, epoch):
    """`entries` are names with bytes and a mode. Folders are implied by the names."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in sorted(entries.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, epoch
            archive.addfile(member, io.BytesIO(content))
    with open(path, "wb") as out, gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=compression_level, mtime=epoch) as packed:
        packed.write(raw.getvalue())


def write_zip(path, entries, epoch):
    moment = time.gmtime(max(epoch, ZIP_EPOCH))[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (content, mode) in entries.items():
            member = zipfile.ZipInfo(name, moment)
            member.compress_type, member.create_system = zipfile.ZIP_DEFLATED, 3
            member.external_attr = (0o100000 | mode) << 16
            archive.writestr(member, content, compresslevel=compression_level)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
