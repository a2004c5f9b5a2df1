"""What the benchmarks share: the machine's description and a command's CPU time."""
import json
import os
import platform
import shutil
import subprocess
import sys
import time


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": memory, "system": platform.system(),
            "rustc": rustc, "python": platform.python_version()}


def cpu_times():
    """All processor time so far and the part that the hypervisor gave to others, in ticks."""
    with open("/proc/stat") as stat:
        ticks = [int(field) for field in stat.readline().split()[1:9]]
    return sum(ticks), ticks[7]


def stolen_share(before, after):
    """The share of processor time between two `cpu_times` that other virtual machines got: latencies then say little."""
    total = after[0] - before[0]
    return round((after[1] - before[1]) / total, 3) if total else 0.0


# Starts the command and measures it. The kernel counts the memory of the process that starts a program as the program's own
# until it runs, so this one is small and holds nothing.
LAUNCHER = """
import json, os, sys, time
start = time.monotonic()
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
seconds = time.monotonic() - start
with os.fdopen(int(sys.argv[1]), "w") as out:
    json.dump([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, seconds], out)
"""


def cpu_of(command, stdout=subprocess.DEVNULL, **options):
    """CPU seconds, peak memory in MiB and wall seconds of a command."""
    program, *rest = map(str, command)
    program = shutil.which(program) or sys.exit(f"{program} is not there")
    measured, told = os.pipe()
    # -I and -S: no modules of others, which take time and memory.
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(told), program, *rest]
    process = subprocess.Popen(launcher, stdout=stdout, pass_fds=[told], **options)
    os.close(told)
    with os.fdopen(measured) as result:
        found = result.read()
    if process.wait() != 0 or not found:
        sys.exit(f"{program} could not be measured")
    status, cpu, memory, wall = json.loads(found)
    if status != 0:
        sys.exit(f"{program} failed with status {status}")
    return cpu, memory, wall
