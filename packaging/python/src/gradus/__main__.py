"""`python -m gradus`: runs the program that belongs to this package."""

import os
import subprocess
import sys

from gradus._binary import GradusError, find_gradus_bin


def main() -> int:
    try:
        program = find_gradus_bin()
    except GradusError as error:
        print(f"gradus: {error}", file=sys.stderr)
        return 2
    if sys.platform != "win32":
        # The program takes the place of this process, so signals and exit codes are its own.
        os.execv(program, [program, *sys.argv[1:]])
    return subprocess.run([program, *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
