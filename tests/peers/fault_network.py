"""A network of its own for a test, in which packets can vanish without a word. Only root can make one."""
import os
import shutil
import subprocess
import sys

MARK = "GRADUS_TEST_OWN_NETWORK"


def enter_own_network():
    """Starts this program again in a network namespace with nothing but loopback. Returns whether it is in one."""
    if os.environ.get(MARK):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return True
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))) or subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        return False
    os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv], os.environ | {MARK: "1"})


def drop_packets(host):
    """Packets to an address of loopback vanish. Connections stay, and notice by their own timeouts only."""
    subprocess.run(["ip", "route", "add", "blackhole", f"{host}/32", "table", "local"], check=True)


def pass_packets(host):
    subprocess.run(["ip", "route", "del", "blackhole", f"{host}/32", "table", "local"], check=True)
