"""What a program needs of the machine that runs it, read from the program itself, and how registries name that."""
from __future__ import annotations

import dataclasses
import pathlib
import re
import struct

# Rust's, Python's and npm's word for a machine.
X86_64, AARCH64 = ("x86_64", "x86_64", "x64"), ("aarch64", "aarch64", "arm64")
# e_machine of ELF, cputype of Mach-O, Machine of PE.
ELF_MACHINES = {62: X86_64, 183: AARCH64}
MACH_MACHINES = {0x01000007: X86_64, 0x0100000C: AARCH64}
PE_MACHINES = {0x8664: X86_64}
# The oldest macOS that Rust supports on each.
MACOS_TAGS = {"x64": "macosx_10_12_x86_64", "arm64": "macosx_11_0_arm64"}
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
    has_jemalloc: bool = False
    program_name: str = "gradus"
    # The oldest glibc that has every symbol version; None for static programs.
    glibc: tuple | None = None


def detect_platform(path):
    content = pathlib.Path(path).read_bytes()
    if content[:6] == b"\x7fELF\x02\x01":
        return detect_linux(path, content)
    if content[:4] == b"\xcf\xfa\xed\xfe":
        rust, _, node = find_machine(path, MACH_MACHINES, struct.unpack_from("<I", content, 4)[0])
        return Platform(f"{rust}-apple-darwin", (MACOS_TAGS[node],), f"darwin-{node}", {"os": ["darwin"], "cpu": [node]}, False)
    if content[:2] == b"MZ":
        # The header of PE stands where the last field of the header of DOS says.
        rust, _, node = find_machine(path, PE_MACHINES, struct.unpack_from("<H", content, struct.unpack_from("<I", content, 60)[0] + 4)[0])
        return Platform(f"{rust}-pc-windows-msvc", ("win_amd64",), f"win32-{node}", {"os": ["win32"], "cpu": [node]}, False, program_name="gradus.exe")
    raise NotAProgram(f"{path}: not a 64-bit program for Linux, macOS or Windows")


def find_machine(path, machines, number):
    if number not in machines:
        raise NotAProgram(f"{path}: machine {number:#x} has no package")
    return machines[number]


def detect_linux(path, content):
    rust, python, node = find_machine(path, ELF_MACHINES, struct.unpack_from("<H", content, 18)[0])
    if not has_interpreter(content):
        # Runs with any libc. Where there is a glibc the other build is better: it has jemalloc and the system's resolver.
        tags = (f"musllinux_1_2_{python}",)
        return Platform(f"{rust}-unknown-linux-musl", tags, f"linux-{node}-musl", {"os": ["linux"], "cpu": [node], "libc": ["musl"]}, True)
    # Symbol versions are in the string table of the dynamic section.
    glibc = max((tuple(map(int, found)) for found in re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", content)), default=(2, 17))
    minor = max(glibc[1], 17)
    tags = (f"manylinux_2_17_{python}", f"manylinux2014_{python}") if minor == 17 else (f"manylinux_2_{minor}_{python}",)
    return Platform(f"{rust}-unknown-linux-gnu", tags, f"linux-{node}", {"os": ["linux"], "cpu": [node], "libc": ["glibc"]}, False, has_jemalloc=True, glibc=(2, minor))


def has_interpreter(content):
    """Whether a dynamic loader starts the program (ELF-64: e_phoff, e_phentsize, e_phnum)."""
    offset, = struct.unpack_from("<Q", content, 32)
    size, count = struct.unpack_from("<HH", content, 54)
    return any(struct.unpack_from("<I", content, offset + index * size)[0] == PT_INTERP for index in range(count))
