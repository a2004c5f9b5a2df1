#!/usr/bin/env python3
"""A stand-in for a model, so that the examples run without a key: an OpenAI-compatible endpoint that follows a script.

  python3 examples/scripted_model.py              # http://127.0.0.1:8901/v1; --port for another port
  export OPENAI_BASE_URL=http://127.0.0.1:8901/v1 OPENAI_API_KEY=none

As an agent on GitHub it knows the requests of SCRIPT and answers in ReAct text, or with tool calls if it is offered tools. Two
of its runs have a known mistake. It also answers for the shop of ci-repository. As a judge (gradus eval, llm_classify) it finds
the call that does not fit its thought.
"""
import argparse
import json
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# Request: steps (thought, tool, arguments), and the answer.
SCRIPT = {
    "Which repositories do I have?": (
        [("I list the repositories of the user.", "list_my_repos", {})],
        "You have one repository: octo/demo.",
    ),
    "Close the issue about the crash on an empty name in octo/demo.": (
        [("I look for the issue about the crash on an empty name.", "list_issues", {"repo": "octo/demo"}),
         ("Issue #5 is about the crash on an empty name, so I close it.", "close_issue", {"repo": "octo/demo", "number": 5})],
        "I closed issue #5.",
    ),
    # A mistake: the thought says one thing, the call does another.
    "Open an issue in octo/demo: the project needs a logo.": (
        [("I open an issue that asks for a logo.", "comment_on_issue", {"repo": "octo/demo", "number": 7, "body": "The project needs a logo."})],
        "I opened an issue that asks for a logo.",
    ),
    # A mistake: GitHub refuses, and the agent claims success.
    "Close issue 99 of octo/demo.": (
        [("I close issue #99 of octo/demo.", "close_issue", {"repo": "octo/demo", "number": 99})],
        "I closed issue #99.",
    ),
}
# The shop of ci-repository: what the model says depends on its instructions, as with a real one.
LOOK_FIRST = "Look an order up before you refund it."


def answer_in_shop(messages, request):
    """Looks orders up and refunds them; without the instruction to look first, it refunds at once."""
    results = [text_of(message) for message in messages if message["role"] == "tool"]
    found = re.search(r"order (\d+)", request)
    if not found:
        return {"content": "You are welcome."}
    order = int(found[1])
    is_careful = any(LOOK_FIRST in text_of(message) for message in messages)
    if "refund" not in request:
        return {"content": f"Order {order} was {results[0]}."} if results else call("I look up the order.", 0, "get_order", {"order_id": order})
    if is_careful and not results:
        return call("I look up the order before I refund it.", 0, "get_order", {"order_id": order})
    if is_careful and results[0] != "delivered":
        return {"content": f"Order {order} was already {results[0]}, so I cannot refund it."}
    if any("was refunded" in result for result in results):
        return {"content": f"Order {order} was refunded."}
    return call("I refund the order.", len(results), "refund_order", {"order_id": order})


def call(thought, number, tool, arguments):
    """A reply that calls a tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"content": thought, "tool_calls": [{"id": f"call_{number + 1}", "type": "function", "function": function}]}


# How the rubrics that look at the tool begin: that of Gradus, and that of the specification.
ABOUT_TOOL = re.compile(r"does the call do what the thought says|chose the right GitHub tool")
WRONG_THOUGHT = "I open an issue that asks for a logo."


def answer_as_agent(messages, has_tools):
    """The next step of the script: as many as there are results are done."""
    texts = [text_of(message) for message in messages]
    request = next((request for text in reversed(texts) for request in SCRIPT if request in text), None)
    if request is None:
        return {"content": "Thought: I do not know this request.\nAnswer: I only know the requests of my script."}
    steps, answer = SCRIPT[request]
    begin = max(index for index, text in enumerate(texts) if request in text)
    done = sum(message["role"] == "tool" or text.startswith("Observation:") for message, text in list(zip(messages, texts))[begin:])
    if done >= len(steps):
        return {"content": answer if has_tools else f"Thought: I can answer without using any more tools.\nAnswer: {answer}"}
    thought, tool, arguments = steps[done]
    if not has_tools:
        return {"content": f"Thought: {thought}\nAction: {tool}\nAction Input: {json.dumps(arguments)}"}
    return call(thought, done, tool, arguments)


def judge(text, labels):
    """The label of a right step, or of a wrong one, with a reason."""
    is_wrong = WRONG_THOUGHT in text and ("optimal" in labels or ABOUT_TOOL.search(text))
    reason = "A comment was written instead of the issue that the thought names." if is_wrong else "The step does what it should."
    return {"explanation": reason, "label": labels[1] if is_wrong else labels[0]}


def answer(request):
    """The message that replies to a chat request."""
    text = "\n".join(text_of(message) for message in request["messages"])
    if schema := request.get("response_format", {}).get("json_schema"):  # gradus eval
        labels = sorted(schema["schema"]["properties"]["label"]["enum"], key=["correct", "optimal", "incorrect", "suboptimal"].index)
        return {"content": json.dumps(judge(text, labels))}
    if functions := request.get("functions"):  # llm_classify
        verdict = judge(text, functions[0]["parameters"]["properties"]["response"]["enum"])
        arguments = json.dumps({"explanation": verdict["explanation"], "response": verdict["label"]})
        return {"content": None, "function_call": {"name": functions[0]["name"], "arguments": arguments}}
    if "support agent of a shop" in text:
        return answer_in_shop(request["messages"], next(text_of(one) for one in reversed(request["messages"]) if one["role"] == "user"))
    return answer_as_agent(request["messages"], bool(request.get("tools")))


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class ChatHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", **answer(request)}
        finish = "tool_calls" if "tool_calls" in message else "stop"
        body = json.dumps({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
        }).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="an OpenAI-compatible endpoint that follows a script")
    parser.add_argument("--port", type=int, default=8901)
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), ChatHandler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()
