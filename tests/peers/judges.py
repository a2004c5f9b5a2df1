"""Holds what `gradus eval` sends to judges against the types of the official clients, and answers with their types.

  judges.py GRADUS

Runs in an environment with the `openai` and `anthropic` packages. Prints each difference; nothing when all fits.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import anthropic.types
import openai.types.chat
import pydantic
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from loopback import Service  # noqa: E402

VERDICT = {"explanation": "It lists what the thought is about.", "label": "correct"}


def differences(kind, body):
    """Where a request is not what the official client would send."""
    unknown = set(body) - set(kind.__annotations__) - {key for base in kind.__orig_bases__ for key in getattr(base, "__annotations__", {})}
    found = [f"unknown key {key!r}" for key in sorted(unknown)]
    try:
        pydantic.TypeAdapter(kind).validate_python(body)
    except pydantic.ValidationError as error:
        found += [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5]]
    return found


def openai_answer(body):
    message = openai.types.chat.ChatCompletionMessage(role="assistant", content=json.dumps(VERDICT))
    choice = openai.types.chat.chat_completion.Choice(index=0, finish_reason="stop", message=message)
    details = openai.types.completion_usage.PromptTokensDetails(cached_tokens=64)
    usage = openai.types.CompletionUsage(prompt_tokens=100, completion_tokens=20, total_tokens=120, prompt_tokens_details=details)
    answer = openai.types.chat.ChatCompletion(id="c", object="chat.completion", created=1, model=body["model"], choices=[choice], usage=usage)
    return answer.model_dump_json()


def anthropic_answer(body):
    block = anthropic.types.ToolUseBlock(type="tool_use", id="t", name=body["tools"][0]["name"], input=VERDICT)
    usage = anthropic.types.Usage(input_tokens=36, output_tokens=20, cache_read_input_tokens=64)
    answer = anthropic.types.Message(id="m", type="message", role="assistant", model=body["model"], content=[block], stop_reason="tool_use", usage=usage)
    return answer.model_dump_json()


FORMS = {
    "/v1/chat/completions": (CompletionCreateParamsNonStreaming, openai_answer, "openai:gpt-4o", "OPENAI"),
    "/v1/messages": (MessageCreateParamsNonStreaming, anthropic_answer, "anthropic:claude-sonnet-5-5", "ANTHROPIC"),
}


def judge(gradus, url, source, judge_name, prefix):
    with tempfile.TemporaryDirectory() as state:
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        environment |= {f"{prefix}_API_KEY": "key", f"{prefix}_BASE_URL": url + "/v1"}
        command = [gradus, "eval", source, "--judge", judge_name, "-e", "thought_to_tool", "--jsonl", "-", "--state-dir", state]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if ran.returncode != 0:
        return [f"gradus failed: {ran.stderr.strip()}"]
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    scored = [line for line in lines if line["label"] == "correct" and line["explanation"] == VERDICT["explanation"]]
    tokens = {json.dumps(line["tokens"], sort_keys=True) for line in scored}
    found = [] if scored and len(scored) == len(lines) else [f"{len(scored)} of {len(lines)} outcomes are scored"]
    return found + [f"tokens {one}" for one in tokens if json.loads(one) != {"cached_prompt": 64, "completion": 20, "prompt": 100}]


def main():
    gradus = sys.argv[1]
    source = str(pathlib.Path(__file__).resolve().parents[2] / "fixtures" / "captures" / "plain-openai-oi" / "s07_error_recovery")
    found = []

    def answer(path, headers, body):
        kind, reply, _, _ = FORMS[path]
        found.extend(f"{path}: {difference}" for difference in differences(kind, json.loads(body)))
        return "application/json", reply(json.loads(body)).encode()

    with Service(answer) as service:
        for _, _, judge_name, prefix in FORMS.values():
            found.extend(f"{judge_name}: {difference}" for difference in judge(gradus, service.url, source, judge_name, prefix))
    for difference in sorted(set(found)):
        print(difference)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
