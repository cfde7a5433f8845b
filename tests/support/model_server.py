"""A server with OpenAI's and Cohere's interfaces on 127.0.0.1 that answers by a function, and misbehaves on demand."""

import base64
import json
import os
import struct
import threading
import time
from collections import Counter
from contextlib import contextmanager
from unittest import mock

from tests.support.servers import Handler, running

OK, BUSY, BROKEN, FOUND = 200, 429, 500, 302


class ModelServer:
    """What it is asked and how it answers.

    `answer` makes an answer of a prompt, `embed` a list of numbers of a text, `relevance` a score of a query and a
    passage. Each attempt takes the next of `steps`, if there is one, instead of an answer: a status, ``"drop"``,
    ``"html"``, or ``"json"`` (of something else); of vectors and scores also ``"few"`` (one is missing) and ``"nan"``,
    of scores ``"twice"`` (one in place of another). After `most` answers, it keeps silent.
    """

    def __init__(self, url):
        self.url = f"{url}/v1"
        self.answer, self.embed = (lambda prompt: "a made up query"), (lambda text: [float(len(text)), 1.0])
        self.relevance = lambda query, passage: float(len(query) + len(passage))
        self.steps, self.most, self.pause, self.retry_after = [], float("inf"), 0.0, None
        self.base64 = True
        #: prompts, texts and pairs that were answered; time, headers and body of every attempt; most attempts at once
        self.answered, self.attempts, self.busiest = Counter(), [], 0
        self.under_way, self.lock, self.closing = 0, threading.Lock(), threading.Event()

    def next_step(self):
        with self.lock:
            return self.steps.pop(0) if self.steps else OK


def model_server(context=None):
    """Run a server; yield it. With an SSL context, it speaks HTTPS."""
    return running(ModelHandler, ModelServer, context)


@contextmanager
def configured_server(key, **functions):
    """Run a server that answers by these functions, of which the environment has the address and a key."""
    with model_server() as server:
        vars(server).update(functions)
        with mock.patch.dict(os.environ, {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": key}):
            yield server


class ModelHandler(Handler):
    """Answers as the server's state says."""

    def do_POST(self):
        state = self.server.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            state.attempts.append((time.monotonic(), dict(self.headers), body))
            state.under_way += 1
            state.busiest = max(state.busiest, state.under_way)
        try:
            self._respond(state, body)
        finally:
            with state.lock:
                state.under_way -= 1
        self.close_connection = True

    def do_GET(self):
        """Where a redirect leads to."""
        self.server.state.attempts.append((time.monotonic(), dict(self.headers), None))
        self._send(OK, b"{}")

    def _respond(self, state, body):
        state.closing.wait(state.pause)
        step = state.next_step()
        if step == "drop":
            return
        if step == "html":
            return self._send(OK, b"<html><body>Log in</body></html>", "text/html")
        if step == "json":
            return self._send(OK, b'{"detail": "something else"}')
        if step not in (OK, "few", "nan", "twice"):
            extra = {"Location": f"{state.url}/elsewhere"} if step == FOUND else {}
            extra |= {"Retry-After": str(state.retry_after)} if state.retry_after else {}
            # Servers quote the key.
            said = json.dumps({"error": {"message": f"refused {self.headers.get('Authorization')}"}})
            return self._send(step, said.encode(), **extra)
        if self.path.endswith("/embeddings"):
            return self._send(OK, json.dumps(self._embedded(state, body, step)).encode())
        ranks = self.path.endswith("/rerank")
        prompt = None if ranks else body["messages"][0]["content"]
        asked = [(body["query"], passage) for passage in body["documents"]] if ranks else [prompt]
        with state.lock:
            silent = sum(state.answered.values()) >= state.most
            state.answered.update([] if silent else asked)
        if silent:
            return state.closing.wait(60)
        if ranks:
            return self._send(OK, json.dumps(self._ranked(state, asked, step)).encode())
        message = {"role": "assistant", "content": state.answer(prompt)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        reply = {"id": "x", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return self._send(OK, json.dumps(reply).encode())

    def _embedded(self, state, body, step):
        """Vectors in base64, as clients ask for, or as numbers, in another order than the texts."""
        with state.lock:
            state.answered.update(body["input"])
        rows = [state.embed(text)[: body.get("dimensions")] for text in body["input"]]
        if step == "nan":
            rows[0] = [float("nan")] * len(rows[0])
        if body.get("encoding_format") == "base64" and state.base64:
            rows = [base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode() for row in rows]
        data = [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)]
        data = data[::-1][: len(data) - (step == "few")]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "model": body["model"], "data": data, "usage": usage}

    def _ranked(self, state, pairs, step):
        """Scores in falling order."""
        scores = [float("nan") if step == "nan" else state.relevance(*pair) for pair in pairs]
        results = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
        results.sort(key=lambda one: -one["relevance_score"])
        if step == "twice":
            results[-1] |= {"index": results[0]["index"]}
        return {"id": "x", "results": results[: len(results) - (step == "few")], "meta": {"billed_units": {}}}

    def _send(self, status, body, kind="application/json", **headers):
        self.send_response(status)
        headers |= {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
