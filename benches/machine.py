"""What the benchmarks share: the machine's description and a command's CPU time."""
import os
import platform
import subprocess
import sys
import time


def machine():
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    rustc = subprocess.run(["rustc", "--version"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": memory, "system": platform.system(),
            "rustc": rustc, "python": platform.python_version()}


def cpu_of(command, stdout=subprocess.DEVNULL, **options):
    """CPU seconds, peak memory in MiB and wall seconds of a command."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=stdout, **options)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.monotonic() - start
