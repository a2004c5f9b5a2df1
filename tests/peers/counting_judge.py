"""A scripted judge that counts: which questions were asked how often, and how many at once. The verdict is a function of
the question, so that every run gets the same ones."""
import collections
import hashlib
import json
import threading

from loopback import Service

# How long a held question waits for its release at most: a test that failed before must end.
MAX_HOLD_S = 300


def _labels(schema):
    """The labels that the schema of an answer allows."""
    if isinstance(schema, dict):
        return schema.get("enum") or [label for value in schema.values() for label in _labels(value)]
    return [label for value in schema for label in _labels(value)] if isinstance(schema, list) else []


class CountingJudge:
    def __init__(self, hold_after=None, on_call=None, usage=(11, 7)):
        """With `hold_after`, questions beyond that number wait until `release` is called. `on_call` gets the headers and the body of each call
        before it is answered. `usage` are the tokens of a question and of an answer."""
        self._on_call, self._usage = on_call, usage
        self.asked = collections.Counter()
        self.held = set()
        self.most_at_once = 0
        self._at_once = 0
        self._hold_after = hold_after
        self._lock = threading.Lock()
        self._released = threading.Event()
        self.is_holding = threading.Event()
        self.service = Service(self._answer)
        # Whoever asked may be dead: that is what is tested.
        self.service.server.handle_error = lambda *_: None
        self.url = self.service.url + "/v1"

    def release(self):
        self._released.set()

    @property
    def calls(self):
        return sum(self.asked.values())

    def _answer(self, _, headers, body):
        request = json.loads(body)
        question = hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest()
        with self._lock:
            self.asked[question] += 1
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            is_held = self._hold_after is not None and self.calls > self._hold_after and not self._released.is_set()
            if is_held:
                self.held.add(question)
        if is_held:
            self.is_holding.set()
            self._released.wait(MAX_HOLD_S)
        if self._on_call:
            self._on_call(headers, body)
        labels = sorted(_labels(request.get("response_format")))
        label = labels[int(question[:2], 16) % len(labels)]
        content = json.dumps({"explanation": f"By the script, {question[:8]}.", "label": label})
        choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop", "logprobs": None}
        prompt, completion = self._usage
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        reply = {"id": "1", "object": "chat.completion", "created": 1, "model": request["model"], "choices": [choice], "usage": usage}
        with self._lock:
            self._at_once -= 1
        return "application/json", json.dumps(reply).encode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.service.__exit__()
