"""The two services an agent under test talks to, both on loopback and from the standard library alone: a model that
says what its script says, and a collector that keeps what exporters send."""
import json
import pathlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Service:
    """An HTTP server in a thread."""

    def __init__(self, answer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                kind, reply = answer(self.path, dict(self.headers.items()), body)
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def collector(folder):
    """Keeps each request body of an OTLP exporter as a file, just as it came."""
    count = iter(range(1, 1_000_000))

    def answer(path, headers, body):
        pathlib.Path(folder, f"{path.rsplit('/', 1)[-1]}-{next(count):04d}.bin").write_bytes(body)
        return headers.get("Content-Type", "application/x-protobuf"), b""

    return Service(answer)


def scripted_model(replies):
    """An OpenAI-compatible chat endpoint that gives the replies in order: a text, or a message with tool calls."""
    replies = iter(replies)
    lock = threading.Lock()

    def choose(_):
        with lock:
            return next(replies, "There is nothing more to say.")

    return answering_model(choose)


def answering_model(choose):
    """The same, with the reply that `choose` makes of the messages of a request: for agents that run at the same time."""

    def answer(_, __, body):
        request = json.loads(body)
        reply = choose(request["messages"])
        message = {"role": "assistant", "content": reply} if isinstance(reply, str) else {"role": "assistant", **reply}
        calls = message.get("tool_calls")
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None}
        completion = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": request["model"], "choices": [choice],
                      "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}}
        return "application/json", json.dumps(completion).encode()

    return Service(answer)


def tool_call(call_id, name, **arguments):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
