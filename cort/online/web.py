"""The explorer's server: its page over open systems, for this machine alone, and an API for programs.

Every address begins with a secret token, which other accounts of the machine do not know. The server answers only
requests to read, of limited length, that a browser or a program sends to this machine by name (a name that another
site has pointed here is refused), and requests of its own page to record a judgement, if it has a file for them. The
searcher is not thread-safe, so requests queue for its one thread.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from secrets import compare_digest
from typing import Any, TypeVar, cast

import numpy as np
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cort.formats.judgements import parse_judgement
from cort.formats.yaml_files import read_yaml
from cort.online.judging import Judging
from cort.online.searcher import Searcher, check_query
from cort.online.why import explain
from cort.runtime.errors import InputError, input_error, shorten

log = logging.getLogger(__name__)

Returned = TypeVar("Returned")

ADDRESS, LAST_PORT = "127.0.0.1", 65_535
#: this machine, at any port, because a port may be forwarded to another one
HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?")
#: requests that may wait for the thread
MOST_WAITING = 256
#: characters of a query, and bytes of an address, where a character takes up to 12
LONGEST_QUERY, LONGEST_ADDRESS = 1_000, 16_000
#: results per system: maximum and default
MOST_RESULTS, RESULTS = 1_000, 20
METHODS, JUDGEMENTS = ("GET", "HEAD"), "/api/judgements"
UNKNOWN = "none or another one, expected that of the address that the server printed; open that address"
#: bytes of a judgement
LENGTH, SHORT = re.compile("^[1-9][0-9]{0,3}$"), "1 to 9999"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Otherwise, the page of any site could load the scripts with data.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
#: replacements that turn the page of a folder into one with a server
LIVE = {
    '<html lang="en">': '<html lang="en" data-live="{most}">',
    "img-src data:;": "img-src data:; connect-src 'self';",
}
#: end of the head of a page where a person judges
JUDGE = '<link rel="stylesheet" href="judge.css">\n<script src="judge.js" defer></script>\n</head>'
#: the program of the page; its data are those of the build
PAGE = Path(__file__).parents[1] / "reporting" / "explorer"


def make_app(searcher: Searcher, folder: Path, line: Line, token: str = "", judging: Judging | None = None) -> ASGIApp:
    """Make the server's application.

    :param folder: of the page's data.
    :param token: first part of every address; requests without it are refused, unless it is empty.
    :param judging: what the page lets a person judge.
    """
    api = Api(searcher, line, judging)
    text = (PAGE / "index.html").read_text("utf-8")
    page = live_page(text.replace("</head>", JUDGE) if judging else text, api.most)
    document = read_yaml(Path(__file__).with_name("openapi.yaml"))
    files = {name: PAGE / name for name in ("explorer.js", "explorer.css", "judge.css", "judge.js")}
    files |= {f"data/{path.name}": path for path in folder.glob("*.js")}

    async def index(_: Request) -> Response:
        return HTMLResponse(page)

    async def file(request: Request) -> Response:
        return _file(files.get(request.path_params["name"]))

    async def openapi(_: Request) -> Response:
        return answer(document)

    answers = {"/api/search": api.search, "/api/why": api.why, "/api/openapi.json": openapi}
    answers |= {JUDGEMENTS: api.judgements} if judging else {}
    pages = {"/": index, "/index.html": index, "/{name:path}": file}
    app = Starlette(
        routes=[Route(path, handler, methods=["GET", "POST"]) for path, handler in (answers | pages).items()],
        exception_handlers={HTTPException: _refuse, InputError: _refuse, Exception: _fail},
    )
    return Guard(app, f"/{token}" if token else "", JUDGEMENTS if judging else None)


def live_page(text: str, most: int) -> str:
    """Tell the page that it has a server, which gives at most `most` results."""
    for before, after in LIVE.items():
        if text.count(before) != 1:
            raise input_error("index.html", f"{text.count(before)} times {before}", "it once", "see cort/online/web.py")
        text = text.replace(before, after.format(most=most))
    return text


def _file(path: Path | None) -> Response:
    if path is None or not path.is_file():
        raise HTTPException(404, "no such page: / is the explorer, /api/openapi.json describes the API")
    # After another build, the file differs.
    return FileResponse(path, headers={"Cache-Control": "no-cache"})


class Guard:
    """Refuses requests before any work is done for them, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, root: str, written: str | None) -> None:
        """Take requests to paths that begin with the secret `root`; only those to the path `written` may write."""
        self.app, self.root, self.written = app, root, written

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if scope["type"] == "http":
            first, slash, rest = scope["path"].removeprefix("/").partition("/")
            known = not self.root or (slash and compare_digest(f"/{first}".encode(), self.root.encode()))
            path = f"/{rest}" if self.root else scope["path"]
            refused = self._refusal(scope, path) if known else refusal(403, f"token: found {UNKNOWN}")
            await (refused or self.app)({**scope, "path": path}, receive, send_with_headers)

    def _refusal(self, scope: Scope, path: str) -> Response | None:
        headers = Headers(scope=scope)
        host = ", ".join(headers.getlist("host")).lower()
        if not HOST.fullmatch(host):
            expected = "expected 127.0.0.1 or localhost"
            return refusal(421, f"Host: found {shorten(host)}, {expected}; open the address that the server printed")
        judges = (scope["method"], path) == ("POST", self.written)
        if scope["method"] not in METHODS and not judges:
            expected = f"expected {' or '.join(METHODS)}; nothing here can be changed"
            return refusal(405, f"found {shorten(scope['method'])}, {expected}", {"Allow": ", ".join(METHODS)})
        length = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if length > LONGEST_ADDRESS:
            expected = f"expected {LONGEST_ADDRESS:,} at most; shorten the query"
            return refusal(414, f"address: found {length:,} bytes, {expected}")
        if path.startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return refusal(403, "found a request of another site's page, expected one of this page or of a program")
        return _refused_judgement(headers, host) if judges else None


def _refused_judgement(headers: Headers, host: str) -> Response | None:
    """Refuse what is not a short request in JSON from the page at this address."""
    for status, name, found, expected in (
        (403, "Origin", headers.get("origin"), f"http://{host}"),
        (415, "Content-Type", headers.get("content-type"), "application/json"),
        (413, "Content-Length", LENGTH.sub(SHORT, headers.get("content-length", "none")), SHORT),
    ):
        if found != expected:
            return refusal(status, f"{name}: found {shorten(found)}, expected {expected}; judge on this server's page")
    return None


class Api:
    """Answers in JSON."""

    def __init__(self, searcher: Searcher, line: Line, judging: Judging | None = None) -> None:
        self.searcher, self.line, self.judging = searcher, line, judging
        self.most = min(MOST_RESULTS, searcher.depth)

    async def search(self, request: Request) -> Response:
        """Search with some systems, one after the other."""
        given = _parameters(request, "q", "systems", "k")
        query, names, count = _query(given), self._names("systems", given), self._count(given)

        def work() -> list[dict[str, Any]]:
            return [self._answer(name, query, count) for name in names]

        systems = await self.line.result(work, request.receive)
        return answer({"query": query, "k": count, "systems": systems})

    async def why(self, request: Request) -> Response:
        """Explain a result."""
        given = _parameters(request, "q", "system", "doc_id")
        query, doc_id, names = _query(given), given.get("doc_id", ""), self._names("system", given)
        if len(names) > 1:
            raise input_error("system", f"{len(names)} names", f"one {self._open}", "choose one")
        reason = await self.line.result(lambda: explain(self.searcher, names[0], query, doc_id), request.receive)
        return answer({"query": query, "doc_id": doc_id, **asdict(reason)})

    async def judgements(self, request: Request) -> Response:
        """Record a judgement, list the candidates of a query, or say what is judged."""
        query_id = _parameters(request, "query_id").get("query_id")
        body = await request.body() if request.method == "POST" else b""
        try:
            return answer(await self.line.result(partial(self._judged, query_id, body), request.receive))
        except OSError as error:
            raise HTTPException(507, f"the judgement is not saved: {error.strerror}; judge again") from error

    def _judged(self, query_id: str | None, body: bytes) -> dict[str, Any]:
        judging, passages = cast("Judging", self.judging), self.searcher.passages
        if body:
            judging.judge(parse_judgement("judgement", body), passages)
            return {}
        return judging.state() if query_id is None else {"texts": judging.texts(query_id, passages)}

    def _answer(self, name: str, query: str, count: int) -> dict[str, Any]:
        found, texts = self.searcher.answer(name, query, count)
        results = [
            # The shortest decimals that identify scores of single precision.
            {"rank": result.rank, **result._asdict(), "score": float(str(np.float32(result.score))), "text": text}
            for result, text in zip(found.results, texts, strict=True)
        ]
        milliseconds = {part: round(value, 3) for part, value in found.milliseconds.items()}
        return dict(system=name, results=results, milliseconds=milliseconds)

    @property
    def _open(self) -> str:
        return f"of the systems that are open here, {', '.join(self.searcher.systems)}"

    def _names(self, key: str, given: Mapping[str, str]) -> list[str]:
        # In an address, `+` is a blank, which no name has.
        names = list(dict.fromkeys(given.get(key, "").replace(" ", "+").split(",")))
        for name in names:
            if name not in self.searcher.systems:
                raise input_error(key, shorten(name), f"one {self._open}", "choose among these")
        return names

    def _count(self, given: Mapping[str, str]) -> int:
        text = given.get("k", str(min(RESULTS, self.most)))
        if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= self.most:
            raise input_error("k", shorten(text), f"a number from 1 to {self.most}", "fix it")
        return int(text)


def _query(given: Mapping[str, str]) -> str:
    query = given.get("q", "")
    check_query(query)
    if len(query) > LONGEST_QUERY:
        raise input_error("q", f"{len(query):,} characters", f"{LONGEST_QUERY:,} at most", "shorten the query")
    return query


def _parameters(request: Request, *known: str) -> dict[str, str]:
    """Return the parameters of a request; none may be unknown or repeated."""
    pairs, fix = request.query_params.multi_items(), "see /api/openapi.json"
    for key, _ in pairs:
        if key not in known:
            raise input_error("address", shorten(key), f"only {', '.join(known)}", fix)
    if len(dict(pairs)) < len(pairs):
        raise input_error("address", "a parameter twice", f"{', '.join(known)}, each once", fix)
    return dict(pairs)


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response of JSON, in UTF-8."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(), status, headers, "application/json")


def refusal(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response with a one-line error."""
    return answer({"error": " ".join(error.split())}, status, headers)


def _refuse(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return refusal(error.status_code, str(error.detail), error.headers)
    return refusal(400, str(error))


def _fail(_: Request, error: Exception) -> Response:
    log.error("a request failed because of a bug in this program, not because of its input", exc_info=error)
    return refusal(500, "a bug in the server; its log has the details")


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Listen at a port of this machine's own address, or at any free one if it is 0.

    :raises InputError: if another program uses the port, or it does not exist.
    """
    fix = "give another --port, or 0 for any free one"
    if port > LAST_PORT:
        raise input_error("--port", str(port), f"{LAST_PORT} at most", fix)
    # Because the protocol is named, asyncio sends the parts of an answer at once; otherwise, every second one waits for
    # 40 ms.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        # The port of a server that has just ended is free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
            listener.listen()
        except OSError as error:
            why = "that another program uses" if error.errno == errno.EADDRINUSE else f"({error.strerror})"
            raise input_error("--port", f"{port} {why}", "a free one", fix) from None
        yield listener


class Line:
    """A queue of work for a single thread."""

    def __init__(self, most: int = MOST_WAITING) -> None:
        """Let at most `most` requests wait."""
        self.most, self._waiting = most, 0
        self._pool = ThreadPoolExecutor(1, "searching")
        self._open: set[Future[Any]] = set()

    def submit(self, work: Callable[[], Returned]) -> Future[Returned]:
        """Let the thread do something."""
        future = self._pool.submit(work)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    async def result(self, work: Callable[[], Returned], receive: Receive) -> Returned:
        """Wait for a result of the thread; the work does not begin if the client has disconnected by then.

        :raises HTTPException: if too many requests wait already, or the client has disconnected.
        """
        if self._waiting >= self.most:
            raise HTTPException(503, f"{self._waiting} requests wait already: ask again later")
        self._waiting += 1
        done = asyncio.wrap_future(self.submit(work))
        disconnected = asyncio.ensure_future(_disconnected(receive))
        both: set[asyncio.Future[Any]] = {done, disconnected}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise HTTPException(499, "the client has disconnected")
            return done.result()
        finally:
            self._waiting -= 1
            for future in both:
                future.cancel()

    def end(self) -> bool:
        """Accept no more work; return False if some is still running, which nothing can stop."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return all(future.done() for future in set(self._open))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def serve(app: ASGIApp, listener: socket.socket) -> int:
    """Answer requests until a signal comes, and return its number; requests that wait then get no answer."""
    server = uvicorn.Server(
        uvicorn.Config(
            app, http="h11", ws="none", lifespan="off", log_config=None, log_level="critical", server_header=False
        )
    )
    received = [signal.SIGTERM]

    def end(number: signal.Signals) -> None:
        received.append(number)
        server.should_exit = server.force_exit = True

    async def run() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            # A background job of a shell ignores Ctrl-C.
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, end, number)
        await server.serve([listener])

    # Uvicorn's own handlers would wait for requests, and raise the signal again at the end.
    setattr(server, "capture_signals", nullcontext)  # noqa: B010
    asyncio.run(run())
    return received[-1]
