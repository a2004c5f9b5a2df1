"""What the steps of the action share: inputs, outputs and messages. Inputs come from the environment and never from text that
a shell would read."""
import os
import sys


class BadInput(Exception):
    pass


def read_input(name):
    return os.environ.get(f"INPUT_{name}", "").strip()


def one_line(text):
    return " ".join(str(text).split())


def write_output(name, value):
    """A newline in a value could set another output."""
    line = f"{name}={one_line(value)}\n"
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)
    else:
        sys.stdout.write(line)


def escape_command(text):
    """Text in a workflow command: GitHub decodes these three."""
    return str(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def print_command(kind, text):
    print(f"::{kind}::{escape_command(text)}", flush=True)


def run_step(main):
    """Runs a step; bad input is one line and exit code 2."""
    try:
        sys.exit(main())
    except BadInput as error:
        print_command("error", error)
        sys.exit(2)
