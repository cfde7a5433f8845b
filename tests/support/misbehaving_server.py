"""An HTTP server on 127.0.0.1 that serves files with ranges, and misbehaves on demand."""

import contextlib
import gzip
import re
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from tests.support.servers import Handler, running

PIECE = 1 << 14


@dataclass
class Step:
    """How one request is answered; the defaults are correct.

    `cut` closes the connection and `stall` falls silent after so many bytes of the body, `pause` waits so many seconds
    between its pieces, and before the head where only that is asked for, `content_range` and `body` replace the right
    ones, without `length` the length is not announced.
    """

    status: int = 0
    headers: dict = field(default_factory=dict)
    body: bytes | None = None
    ranges: bool = True
    cut: int | None = None
    stall: int | None = None
    pause: float = 0
    etag: str | None = '"one"'
    content_range: str | None = None
    length: bool = True
    packed: bool = False


class Server:
    """`files` by path, and `steps` by path in the order of requests; the last step repeats."""

    def __init__(self, url):
        self.url = url
        self.files = {}
        self.steps = defaultdict(lambda: [Step()])
        #: headers of every request, and number of bytes of every body, by path
        self.asked = defaultdict(list)
        self.sent = defaultdict(list)
        self.closing, self.lock = threading.Event(), threading.Lock()

    def serve(self, path, content, *steps):
        """Serve a file in these steps; return its URL."""
        self.files[path] = content
        if steps:
            self.steps[path] = list(steps)
        return self.url + path


def serving():
    """Run a server; yield it."""
    return running(FileHandler, Server)


class FileHandler(Handler):
    """Sends files as the server's steps say."""

    def do_HEAD(self):
        state, step = self.server.state, self.server.state.steps[self.path][0]
        state.asked[self.path].append(dict(self.headers))
        state.closing.wait(step.pause)
        self._head(state, step)

    def do_GET(self):
        state = self.server.state
        self.path = self.path.partition("?")[0]
        steps = state.steps[self.path]
        step = steps.pop(0) if len(steps) > 1 else steps[0]
        state.asked[self.path].append(dict(self.headers))
        with state.lock:
            self.number = len(state.sent[self.path])
            state.sent[self.path].append(0)
        with contextlib.suppress(ConnectionError):
            body = self._head(state, step)
            for offset in range(0, len(body), PIECE):
                piece = body[offset : offset + PIECE]
                for limit, end in ((step.cut, self._cut), (step.stall, self._stall)):
                    if limit is not None and offset + len(piece) >= limit:
                        self._send(piece[: limit - offset])
                        return end()
                self._send(piece)
                if step.pause and self.server.state.closing.wait(step.pause):
                    return None
        self.close_connection = True
        return None

    def _head(self, state, step):
        """Send the head of a response; return its body."""
        if self.path not in state.files and not step.status:
            step = Step(status=404)
        content = state.files.get(self.path, b"") if step.body is None else step.body
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        condition = self.headers.get("If-Range")
        status, headers = step.status or 200, dict(step.headers)
        if not step.status and requested and step.ranges and condition in (None, step.etag):
            start = int(requested[1])
            if start >= len(content):
                status, headers["Content-Range"], content = 416, f"bytes */{len(content)}", b""
            else:
                status = 206
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
                content = content[start:]
        if step.content_range is not None:
            status, headers["Content-Range"] = 206, step.content_range
        if step.packed:
            content, headers["Content-Encoding"] = gzip.compress(content, 1), "gzip"
        if status >= 300 and step.body is None:
            content = b""
        self.send_response(status)
        if step.length:
            headers.setdefault("Content-Length", str(len(content)))
        if step.etag and status < 300:
            headers["ETag"] = step.etag
        for name, value in {**headers, "Connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        return content

    def _send(self, piece):
        # Counted first, because the client may receive it at once.
        sent = self.server.state.sent[self.path]
        sent[self.number] += len(piece)
        try:
            self.wfile.write(piece)
        except OSError:
            sent[self.number] -= len(piece)
            raise

    def _cut(self):
        self.wfile.flush()
        self.close_connection = True

    def _stall(self):
        self.wfile.flush()
        self.server.state.closing.wait(60)
        self.close_connection = True
