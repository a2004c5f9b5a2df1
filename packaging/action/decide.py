"""Fails the job or not, when everything else is done."""
import os

from runner import BadInput, print_command, read_input, run_step

MESSAGES = {3: "a gate failed or a score is worse than the baseline", 4: "nothing to judge: did the agent run with tracing on?", 6: "the run ended early, so its gates are not decided", 5: "not everything could be written", 130: "interrupted"}
# Findings, in contrast to errors: a job whose tracing broke must not pass.
FINDINGS = (3, 6)


def main():
    text = os.environ.get("EXIT_CODE", "")
    if not text.isdigit():
        raise BadInput("gradus did not run")
    code = int(text)
    message = f"gradus: {MESSAGES.get(code, 'not judged')} (exit code {code})"
    if code == 0:
        return 0
    if read_input("FAIL_ON") == "nothing" and code in FINDINGS:
        print_command("warning", message)
        return 0
    print_command("error", message)
    return code


if __name__ == "__main__":
    run_step(main)
