"""The explorer's server: its page over open systems, for this machine alone, and an API for programs.

Every address begins with a secret token, which other accounts of the machine do not know. The server answers only
requests to read, of limited length, that a browser or a program sends to this machine by name (a name that another
site has pointed here is refused), and requests of its own page to record a judgement, if it has a file for them. The
searcher is not thread-safe, so requests queue for its one thread.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import compare_digest
from typing import Annotated, Any, cast

import numpy as np
import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cort.formats.judgements import parse_judgement
from cort.online.judging import Judging
from cort.online.line import Line
from cort.online.searcher import Searcher, check_query
from cort.online.why import explain
from cort.runtime.errors import InputError, input_error, shorten
from cort.systems.live import Reason

log = logging.getLogger(__name__)

#: this machine, at any port, because a port may be forwarded to another one
HOST = re.compile(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?")
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


ABOUT = (
    "Answers of `python -m cort.explore`, at the address that it prints: only GET, and POST of judgements, from this "
    "machine. A refused request has the status 4xx, or 503 if too many wait, and a one-line `error`."
)


class Parameters(BaseModel):
    """Parameters of an address; others are refused."""

    model_config = ConfigDict(extra="forbid")


class Wanted(Parameters):
    """A query, names of systems, separated by commas, and the number of results of each."""

    q: str = Field(max_length=LONGEST_QUERY)
    systems: str
    k: int | None = Field(None, ge=1, le=MOST_RESULTS)


class Asked(Parameters):
    """A query, a system, and any passage."""

    q: str = Field(max_length=LONGEST_QUERY)
    system: str
    doc_id: str


class Of(Parameters):
    """A query whose texts are read."""

    query_id: str | None = None


class Found(BaseModel):
    """A passage, or a document if passages are aggregated: then, `passage` is the one that counted.

    `about` has numbers and ranks of the document's passages, the one that counted first: `3 (rank 2), 1 (rank 5)`.
    """

    rank: int
    doc_id: str
    score: float
    text: str
    passage: str | None = None
    about: str | None = None


class Answer(BaseModel):
    """Results, best first, and the time of each part; `total` is less than their sum where parts ran in parallel."""

    system: str
    results: list[Found]
    milliseconds: dict[str, float]


class Answers(BaseModel):
    """The results of each system, in the order in which they are named."""

    query: str
    k: int
    systems: list[Answer]


@dataclass(frozen=True, kw_only=True)
class Explanation(Reason):
    """The explanation of a passage for a query."""

    query: str
    doc_id: str


class Candidate(BaseModel):
    """A query, and the ids of what is judged for it."""

    query_id: str
    query: str
    candidates: list[str]


class Candidates(BaseModel):
    """Queries; judgements as query, candidate and grade, in the order of judging; what comes next, and its command."""

    queries: list[Candidate]
    judgements: list[tuple[str, str, int]]
    next: tuple[str, str]


class Texts(BaseModel):
    """Texts of candidates; of a document, the passage that counted for a system."""

    texts: dict[str, str]


def make_app(searcher: Searcher, folder: Path, line: Line, token: str = "", judging: Judging | None = None) -> ASGIApp:
    """Make the server's application.

    :param folder: of the page's data.
    :param token: first part of every address; requests without it are refused, unless it is empty.
    :param judging: what the page lets a person judge.
    """
    text = (PAGE / "index.html").read_text("utf-8")
    page = live_page(text.replace("</head>", JUDGE) if judging else text, min(MOST_RESULTS, searcher.depth))
    files = {name: PAGE / name for name in ("explorer.js", "explorer.css", "judge.css", "judge.js")}
    files |= {f"data/{path.name}": path for path in folder.glob("*.js")}

    async def index(_: Request) -> Response:
        return HTMLResponse(page)

    async def file(request: Request) -> Response:
        return _file(files.get(request.path_params["name"]))

    refusals: Any = {HTTPException: _refuse, InputError: _refuse, RequestValidationError: _invalid, Exception: _fail}
    app = FastAPI(
        title="Search an experiment",
        version="1",
        description=ABOUT,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        exception_handlers=refusals,
    )
    add_search(app, searcher, line)
    if judging is not None:
        add_judging(app, searcher, line, judging)
    for path, handler in {"/": index, "/index.html": index, "/{name:path}": file}.items():
        app.add_route(path, handler, ["GET"], include_in_schema=False)
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
        if coding := headers.get("transfer-encoding"):
            # The length of such a body shows only at its end.
            expected = "expected none; send the body with its Content-Length"
            return refusal(411, f"Transfer-Encoding: found {shorten(coding)}, {expected}")
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


def add_search(app: FastAPI, searcher: Searcher, line: Line) -> None:
    """Add searches and explanations; FastAPI describes them by the names, types and docstrings here."""
    most = min(MOST_RESULTS, searcher.depth)
    known = f"one of the systems that are open here, {', '.join(searcher.systems)}"

    def opened(key: str, text: str) -> list[str]:
        # In an address, `+` is a blank, which no name has.
        names = list(dict.fromkeys(text.replace(" ", "+").split(",")))
        for name in names:
            if name not in searcher.systems:
                raise input_error(key, shorten(name), known, "choose among these")
        return names

    def search_with(name: str, query: str, count: int) -> dict[str, Any]:
        found, texts = searcher.answer(name, query, count)
        results = [
            # The shortest decimals that identify scores of single precision.
            {"rank": result.rank, **result._asdict(), "score": float(str(np.float32(result.score))), "text": text}
            for result, text in zip(found.results, texts, strict=True)
        ]
        milliseconds = {part: round(value, 3) for part, value in found.milliseconds.items()}
        return dict(system=name, results=results, milliseconds=milliseconds)

    @app.get("/api/search", response_model=Answers, response_model_exclude_none=True)
    async def search(wanted: Annotated[Wanted, Query()], request: Request) -> Any:
        """Search with some systems, one after the other."""
        check_query(wanted.q)
        names, count = opened("systems", wanted.systems), wanted.k or min(RESULTS, most)
        if count > most:
            raise input_error("k", str(count), f"a number from 1 to {most}", "ask for fewer")

        def work() -> list[dict[str, Any]]:
            return [search_with(name, wanted.q, count) for name in names]

        return {"query": wanted.q, "k": count, "systems": await line.result(work, request.receive)}

    @app.get("/api/why", response_model=Explanation)
    async def why(asked: Annotated[Asked, Query()], request: Request) -> Any:
        """Explain how a system ranks a passage."""
        check_query(asked.q)
        name, *more = opened("system", asked.system)
        if more:
            raise input_error("system", f"{len(more) + 1} names", known, "choose one")
        reason = await line.result(lambda: explain(searcher, name, asked.q, asked.doc_id), request.receive)
        return {"query": asked.q, "doc_id": asked.doc_id, **asdict(reason)}


def add_judging(app: FastAPI, searcher: Searcher, line: Line, judging: Judging) -> None:
    """Add what a person judges."""

    @app.get(JUDGEMENTS, response_model=Candidates | Texts)
    async def candidates(of: Annotated[Of, Query()], request: Request) -> Any:
        """List candidates and judgements; or the texts of a query's candidates.

        Candidates are the first results of the stored runs of all systems, in an order that tells nothing about ranks.
        """
        query_id = of.query_id
        if query_id is None:
            return await line.result(judging.state, request.receive)
        return {"texts": await line.result(lambda: judging.texts(query_id, searcher.passages), request.receive)}

    @app.post(JUDGEMENTS)
    async def judge(request: Request) -> dict[str, str]:
        """Judge a candidate, or withdraw its judgement (`relevance` is null): query_id, doc_id, text, relevance.

        Only from the page of this server, and of all candidates with the same text, whose beginning is `text`. 0 is
        irrelevant, 1 related, 2 partly or not clearly answers, 3 perfectly answers. The answer comes when the judgement
        is on disk.
        """
        one = parse_judgement("judgement", await request.body())
        try:
            await line.result(lambda: judging.judge(one, searcher.passages), request.receive)
        except OSError as error:
            raise HTTPException(507, f"the judgement is not saved: {error.strerror}; judge again") from error
        return {}


def refusal(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response with a one-line error, in JSON."""
    return JSONResponse({"error": " ".join(error.split())}, status, headers)


def _refuse(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return refusal(error.status_code, str(error.detail), error.headers)
    return refusal(400, str(error))


def _invalid(_: Request, error: Exception) -> Response:
    first = cast("RequestValidationError", error).errors()[0]
    name, found = first["loc"][-1], "nothing" if first["type"] == "missing" else shorten(str(first["input"]))
    wanted = (
        "no such parameter" if first["type"] == "extra_forbidden" else first["msg"].removeprefix("Input should be ")
    )
    return refusal(400, f"{name}: found {found}, expected {wanted}; see /api/openapi.json")


def _fail(_: Request, error: Exception) -> Response:
    log.error("a request failed because of a bug in this program, not because of its input", exc_info=error)
    return refusal(500, "a bug in the server; its log has the details")


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
