"""Send requests to a server with OpenAI's interface, and keep its answers in a file that all experiments share.

An answer is kept as soon as it comes: neither a killed job nor another one asks again. One process asks at a time, so
that limits hold. Address and key come from the environment, and appear in no message. Tokens are counted as 4 bytes
each, because only the server knows its tokenizer.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import openai

from cort.config.collection import BYTES_PER_TOKEN, RequestLimits, TextLimits
from cort.runtime.errors import input_error, reason_of
from cort.runtime.locks import acquire
from cort.runtime.progress import Counter

Request = TypeVar("Request")
Answer = TypeVar("Answer")
log = logging.getLogger(__name__)

URL, KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
# Further attempts, after half a second up to 8 s, or when the server asks for it with Retry-After; seconds per attempt.
RETRIES, PATIENCE = 6, 300.0
# How servers refuse requests with too many texts, or too long ones.
TOO_MUCH = (400, 413, 422)


class Unusable(ValueError):
    """What a server sent instead of an answer; `str` names it for a message."""


def key_of(*parts: str) -> bytes:
    """Return the key that an answer is kept by."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()


def tokens_of(text: str) -> int:
    """Estimate the tokens of a text."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def batches_of(texts: Iterable[str], limits: TextLimits, extra: int = 0) -> Iterator[list[str]]:
    """Divide texts into requests: at most so many texts, and so many tokens unless one text alone has more.

    :param extra: tokens that come with each text, such as those of a query.
    """
    batch, tokens = list[str](), 0
    for text in texts:
        more = tokens_of(text) + extra
        if batch and (len(batch) == limits.texts_per_request or tokens + more > limits.tokens_per_request):
            yield batch
            batch, tokens = [], 0
        batch.append(text)
        tokens += more
    if batch:
        yield batch


def refuse_more(texts: int, requests: int, tokens: int, limits: TextLimits) -> None:
    """Log what a job has to ask for, such as scores of pairs of texts, and refuse more than is allowed.

    :raises InputError: for more requests or tokens.
    """
    text = "%d texts to ask for: %d requests, about %d tokens; limits: %d requests, %d tokens"
    log.info(text, texts, requests, tokens, limits.max_requests, limits.max_tokens)
    for unit, number, most in (("requests", requests, limits.max_requests), ("tokens", tokens, limits.max_tokens)):
        if number > most:
            found, fix = f"{number} {unit} needed", "raise it, or ask for less"
            raise input_error(f"endpoint.max_{unit}", found, f"at most {most}", fix)


@contextmanager
def naming_size(size: str) -> Iterator[None]:
    """Name the size of a request with its status if the server may have refused it for that.

    :raises Unusable: if it has one of the statuses `TOO_MUCH`.
    """
    try:
        yield
    except openai.APIStatusError as error:
        if error.status_code not in TOO_MUCH:
            raise
        raise Unusable(f"status {error.status_code} for {size}") from None


class Answers(Generic[Answer]):
    """The answers in a file, by the digest of what was asked."""

    def __init__(self, connection: sqlite3.Connection, table: str) -> None:
        """Take a table of keys and answers, which is made if there is none: its name and columns."""
        connection.execute(f"CREATE TABLE IF NOT EXISTS {table}")
        name = table.partition(" ")[0]
        self._connection = connection
        self._select = f"SELECT * FROM {name} WHERE key = ?"  # noqa: S608 - a name in the code
        # Where files cannot be locked, another process may have kept an answer meanwhile.
        self._insert = f"INSERT OR IGNORE INTO {name} VALUES (?, ?)"  # noqa: S608

    def get(self, key: str | bytes) -> Answer | None:
        """Return an answer, or None if there is none yet."""
        row: tuple[Any, Answer] | None = self._connection.execute(self._select, (key,)).fetchone()
        return None if row is None else row[1]

    def keep(self, answers: Iterable[tuple[str | bytes, Answer]]) -> None:
        """Write answers with their keys."""
        self._connection.executemany(self._insert, answers)


@contextmanager
def kept_answers(path: str, table: str) -> Iterator[Answers[Any]]:
    """Open a file of answers, which others wait for until it is closed.

    :param table: as `Answers` takes it.
    :raises InputError: if it is no such file.
    """
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    log.info("waiting for other processes that ask, if there are any")
    try:
        # The lock ends with this block, as nothing else refers to it.
        with acquire(Path(f"{path}.lock"), -1) or nullcontext(), closing(sqlite3.connect(path)) as kept:
            kept.isolation_level = None
            yield Answers(kept, table)
    except sqlite3.Error as error:
        raise input_error(path, reason_of(error), "a file of answers", "move it away, and call again") from None


def send(
    requests: Iterable[Request],
    answer: Callable[[openai.AsyncOpenAI, Request], Awaitable[int]],
    counter: Counter,
    limits: RequestLimits,
    model: str,
) -> None:
    """Send requests, several at once, each with retries while the server is busy or away; stop at the first error.

    :param answer: sends a request and keeps what comes; returns how far the counter advances.
    :param model: the key in the config that names the model.
    :raises InputError: after the answers to requests under way are kept.
    """
    queue, turn = deque(requests), asyncio.Lock()
    pause = 60 / limits.requests_per_minute if limits.requests_per_minute else 0

    async def wait(_: httpx.Request) -> None:
        # Before every attempt: at most one per pause.
        async with turn:
            await asyncio.sleep(pause)

    async def work(client: openai.AsyncOpenAI) -> None:
        while queue:
            request = queue.popleft()
            try:
                with told(model):
                    counter.advance(await answer(client, request))
            except BaseException:
                queue.clear()
                raise

    async def work_at_once() -> list[BaseException | None]:
        async with open_client(wait) as client:
            return await asyncio.gather(*(work(client) for _ in range(limits.at_once)), return_exceptions=True)

    for error in filter(None, asyncio.run(work_at_once())):
        raise error


def open_client(wait: Callable[[httpx.Request], Awaitable[None]]) -> openai.AsyncOpenAI:
    """Open the client of the server in the environment, which waits before each attempt.

    :raises InputError: if no address is set.
    """
    # It logs every address.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    url = os.environ.get(URL, "")
    try:
        if not re.match("https?://[^/]", url):
            raise httpx.InvalidURL("no address")
        return openai.AsyncOpenAI(
            api_key=os.environ.get(KEY, ""),
            base_url=url,
            max_retries=RETRIES,
            timeout=PATIENCE,
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"request": [wait]}),
        )
    except httpx.InvalidURL:
        expected = "an address such as http://localhost:8080/v1"
        raise input_error(URL, "no address" if url else "nothing", expected, "set this environment variable") from None


@contextmanager
def told(model: str) -> Iterator[None]:
    """Tell what went wrong with a request in one line, without quoting the server, which may know the key."""
    fix = f"check the server, {URL}, {KEY} and {model}, and call again"
    try:
        yield
        return
    except Unusable as error:
        found = str(error)
    except openai.APIStatusError as error:
        found = f"status {error.status_code} {httpx.codes.get_reason_phrase(error.status_code)}"
    except openai.APITimeoutError:
        found = f"no answer in {PATIENCE:g} s"
    except openai.APIConnectionError as error:
        found = "an invalid certificate" if "CERTIFICATE" in str(error.__cause__) else "no connection"
    except (openai.OpenAIError, ValueError, AttributeError):
        found = "no answer of a model (HTML or other JSON)"
    raise input_error(model.rpartition(".")[0], found, "an answer", fix)
