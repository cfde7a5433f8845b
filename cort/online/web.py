"""The explorer's page over open systems: a server for this machine alone, and what programs may ask it.

Only requests that a browser or a program makes to this address by name are answered (a name that another site lets
point here is refused), only such that read, and of limited length. The searcher is not for several threads: requests
wait in line for the one that has it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cort.formats.yaml_files import read_yaml
from cort.online.searcher import Searcher, check_query
from cort.online.serving import Line
from cort.online.why import explain
from cort.system.errors import InputError, input_error, shorten

log = logging.getLogger(__name__)

#: characters of a query, and bytes of an address, in which a character takes up to 12
LONGEST_QUERY, LONGEST_ADDRESS = 1_000, 16_000
#: results per system, and what is asked for if nothing is said
MOST_RESULTS, RESULTS = 1_000, 20
HOSTS = ("127.0.0.1", "localhost")
METHODS = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    # Scripts with data would else hand them to the page of any site.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
#: in the page, what is for a folder without a server, and what takes its place
LIVE = {
    '<html lang="en">': '<html lang="en" data-live="{most}">',
    "img-src data:;": "img-src data:; connect-src 'self';",
}


@dataclass(frozen=True)
class Site:
    """What is served: the folder of the page and its program, and that of an experiment's data."""

    page: Path
    data: Path


def make_app(searcher: Searcher, site: Site, line: Line, port: int) -> ASGIApp:
    """Make the server's program.

    :param port: at which it is asked; requests that name another are refused.
    """
    api = Api(searcher, line)
    page = live_page((site.page / "index.html").read_text("utf-8"), api.most)
    document = read_yaml(Path(__file__).with_name("openapi.yaml"))
    data = {path.name: path for path in site.data.glob("*.js")}

    async def index(_: Request) -> Response:
        return HTMLResponse(page)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        path = site.page / name if name in ("explorer.js", "explorer.css") else None
        return _file(path)

    async def shard(request: Request) -> Response:
        return _file(data.get(request.path_params["name"]))

    async def openapi(_: Request) -> Response:
        return answer(document)

    pages = {"/": index, "/index.html": index, "/{name}": file, "/data/{name}": shard}
    answers = {"/api/search": api.search, "/api/why": api.why, "/api/openapi.json": openapi}
    app = Starlette(
        routes=[Route(path, handler) for path, handler in (*answers.items(), *pages.items())],
        exception_handlers={HTTPException: _refuse, InputError: _refuse, Exception: _fail},
    )
    return Guard(app, {f"{host}:{port}" for host in HOSTS})


def live_page(text: str, most: int) -> str:
    """Tell the page that it is served, and let it ask the server; `most` is the number of results it may ask for."""
    for before, after in LIVE.items():
        if text.count(before) != 1:
            raise input_error("index.html", f"{text.count(before)} times {before}", "it once", "see cort/online/web.py")
        text = text.replace(before, after.format(most=most))
    return text


def _file(path: Path | None) -> Response:
    if path is None or not path.is_file():
        raise HTTPException(404, "no such page: / is the explorer, /api/openapi.json says what can be asked")
    # Built anew, it is another one.
    return FileResponse(path, headers={"Cache-Control": "no-cache"})


class Guard:
    """Refuses requests before anything is done for them, and gives every answer its headers."""

    def __init__(self, app: ASGIApp, hosts: set[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        if scope["type"] == "http":
            refused = self._refusal(scope)
            await (refused or self.app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = ", ".join(headers.getlist("host")).lower()
        if host not in self.hosts:
            expected = f"expected one of {', '.join(sorted(self.hosts))}"
            return refusal(421, f"Host: found {shorten(host)}, {expected}; open the address that the server printed")
        if scope["method"] not in METHODS:
            expected = f"expected {' or '.join(METHODS)}; nothing here can be changed"
            return refusal(405, f"found {shorten(scope['method'])}, {expected}", {"Allow": ", ".join(METHODS)})
        length = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if length > LONGEST_ADDRESS:
            expected = f"expected {LONGEST_ADDRESS:,} at most; shorten the query"
            return refusal(414, f"address: found {length:,} bytes, {expected}")
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return refusal(403, "found a request of another site's page, expected one of this page or of a program")
        return None


class Api:
    """Answers in JSON."""

    def __init__(self, searcher: Searcher, line: Line) -> None:
        self.searcher, self.line = searcher, line
        self.most = min(MOST_RESULTS, searcher.manifest.depth)

    async def search(self, request: Request) -> Response:
        """Search with some systems, one after the other."""
        wanted = _only(request, "q", "systems", "k")
        query, names, count = self._query(wanted), self._systems(wanted), self._count(wanted)

        def work() -> list[dict[str, Any]]:
            return [self._answer(name, query, count) for name in names]

        found = await self.line.result(work, request.receive)
        return answer({"query": query, "k": count, "systems": found})

    async def why(self, request: Request) -> Response:
        """Explain a result."""
        wanted = _only(request, "q", "system", "doc_id")
        query, doc_id = self._query(wanted), wanted.get("doc_id", "")
        [name] = self._systems({"systems": wanted.get("system", "")}, "system", 1)
        reason = await self.line.result(lambda: explain(self.searcher, name, query, doc_id), request.receive)
        return answer({"query": query, "doc_id": doc_id, **asdict(reason)})

    def _answer(self, name: str, query: str, count: int) -> dict[str, Any]:
        found = self.searcher.search(name, query, count)
        texts = self.searcher.passages.texts([one.doc_id for one in found.results])
        results = [
            # Scores are of single precision: these are the shortest decimals that say which.
            {"rank": one.rank, "doc_id": one.doc_id, "score": float(str(np.float32(one.score))), "text": text}
            for one, text in zip(found.results, texts, strict=True)
        ]
        milliseconds = {part: round(value, 3) for part, value in found.milliseconds.items()}
        return dict(system=name, results=results, milliseconds=milliseconds)

    def _query(self, wanted: Mapping[str, str]) -> str:
        query = wanted.get("q", "")
        check_query(query)
        if len(query) > LONGEST_QUERY:
            raise input_error("q", f"{len(query):,} characters", f"{LONGEST_QUERY:,} at most", "shorten the query")
        return query

    def _systems(self, wanted: Mapping[str, str], key: str = "systems", most: int | None = None) -> list[str]:
        known = self.searcher.systems
        names = list(dict.fromkeys(wanted.get("systems", "").split(",")))
        expected = f"of the systems that are open here, {', '.join(known)}"
        for name in names:
            if name not in known:
                raise input_error(key, shorten(name), f"one {expected}", "choose among these")
        if most is not None and len(names) > most:
            raise input_error(key, f"{len(names)} names", f"one {expected}", "choose one")
        return names

    def _count(self, wanted: Mapping[str, str]) -> int:
        text = wanted.get("k", str(min(RESULTS, self.most)))
        if not re.fullmatch("[0-9]{1,6}", text) or not 1 <= int(text) <= self.most:
            raise input_error("k", shorten(text), f"a number from 1 to {self.most}", "fix it")
        return int(text)


def _only(request: Request, *known: str) -> dict[str, str]:
    """Take the parameters of a request, each of which is there once at most."""
    pairs = request.query_params.multi_items()
    for key, _ in pairs:
        if key not in known:
            raise input_error("address", shorten(key), f"only {', '.join(known)}", "see /api/openapi.json")
    if len(dict(pairs)) < len(pairs):
        raise input_error("address", "a parameter twice", f"{', '.join(known)}, each once", "see /api/openapi.json")
    return dict(pairs)


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make a response of JSON, in UTF-8."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode(), status, headers, "application/json")


def refusal(status: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make the response that says in one line what is wrong."""
    return answer({"error": " ".join(error.split())}, status, headers)


def _refuse(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return refusal(error.status_code, str(error.detail), error.headers)
    return refusal(400, str(error))


def _fail(_: Request, error: Exception) -> Response:
    log.error("a request failed; this is a defect of the program, not of its input", exc_info=error)
    return refusal(500, "a defect of the server, whose log says more")
