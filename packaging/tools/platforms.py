"""What a program needs of the machine that runs it, read from the program itself, and how registries name that."""
from __future__ import annotations

import dataclasses
import pathlib
import re
import struct

# e_machine of ELF: Rust's, Python's and npm's word for it.
MACHINES = {62: ("x86_64", "x86_64", "x64"), 183: ("aarch64", "aarch64", "arm64")}
PT_INTERP = 3


class NotAProgram(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Platform:
    target: str
    wheel_tags: tuple
    npm_name: str
    npm_fields: dict
    is_static: bool
    # The oldest glibc that has every symbol version; None for static programs.
    glibc: tuple | None = None


def detect_platform(path):
    content = pathlib.Path(path).read_bytes()
    if content[:4] != b"\x7fELF" or content[4:6] != b"\x02\x01":
        raise NotAProgram(f"{path}: not a 64-bit little-endian ELF program")
    machine, = struct.unpack_from("<H", content, 18)
    if machine not in MACHINES:
        raise NotAProgram(f"{path}: machine {machine} has no package")
    rust, python, node = MACHINES[machine]
    if not has_interpreter(content):
        # Runs with any libc. Where there is a glibc the other build is better: it has jemalloc and the system's resolver.
        tags = (f"musllinux_1_2_{python}",)
        return Platform(f"{rust}-unknown-linux-musl", tags, f"linux-{node}-musl", {"os": ["linux"], "cpu": [node], "libc": ["musl"]}, True)
    # Symbol versions are in the string table of the dynamic section.
    glibc = max((tuple(map(int, found)) for found in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", content)), default=(2, 17))
    minor = max(glibc[1], 17)
    tags = (f"manylinux_2_17_{python}", f"manylinux2014_{python}") if minor == 17 else (f"manylinux_2_{minor}_{python}",)
    return Platform(f"{rust}-unknown-linux-gnu", tags, f"linux-{node}", {"os": ["linux"], "cpu": [node], "libc": ["glibc"]}, False, (2, minor))


def has_interpreter(content):
    """Whether a dynamic loader starts the program (ELF-64: e_phoff, e_phentsize, e_phnum)."""
    offset, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return any(struct.unpack_from("<I", content, offset + index * size)[0] == PT_INTERP for index in range(count))
