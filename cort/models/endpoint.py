"""Ask an OpenAI-compatible server about texts, each once: answers are kept in a file that all experiments share.

An answer is kept by model, prompt and text as soon as it comes: neither a killed job nor another one asks again. One
process asks at a time, so that limits hold. Address and key come from the environment, and appear in no message.
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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

import httpx
import openai
from openai.types.chat import ChatCompletion

from cort.config.collection import Endpoint
from cort.runtime.errors import input_error, reason_of
from cort.runtime.locks import acquire
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

URL, KEY = "OPENAI_BASE_URL", "OPENAI_API_KEY"
# Further attempts, after half a second up to 8 s, or when the server asks for it with Retry-After; seconds per attempt.
RETRIES, PATIENCE = 6, 300.0
# What some models write before their answer.
THOUGHTS = re.compile("<think>.*?</think>", re.DOTALL)


def ask(prompt: str, texts: Sequence[str], endpoint: Endpoint, cache: str) -> list[str]:
    """Return the answer to each text, on one line and without what a model thinks aloud; an answer may be empty.

    :param prompt: what stands before each text.
    :param cache: SQLite file of answers, made if there is none.
    :raises InputError: if more requests are needed than allowed, before the first; if the server fails, after the
        answers to requests under way are kept.
    """
    keys = {text: _key_of(endpoint.model, prompt, text) for text in texts}
    Path(cache).parent.mkdir(parents=True, exist_ok=True)
    log.info("waiting for other processes that ask, if there are any")
    try:
        # The lock ends with this block, as nothing else refers to it.
        with acquire(Path(f"{cache}.lock"), -1) or nullcontext(), closing(sqlite3.connect(cache)) as kept:
            kept.isolation_level = None
            kept.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)")
            missing = [text for text, key in keys.items() if _look_up(kept, key) is None]
            counts = len(missing), len(keys) - len(missing), endpoint.max_requests
            log.info("%d requests needed, %d answers cached; limit: %d requests", *counts)
            if len(missing) > endpoint.max_requests:
                found, fix = f"{len(missing)} requests needed", "raise it, or ask for less (`sample`, `depth`)"
                raise input_error("endpoint.max_requests", found, f"at most {endpoint.max_requests}", fix)

            def store(text: str, answer: str) -> None:
                # Where files cannot be locked, another process may have kept an answer meanwhile.
                kept.execute("INSERT OR IGNORE INTO answers VALUES (?, ?)", (keys[text], answer))

            if missing:
                asyncio.run(_send(prompt, missing, endpoint, store))
            return [_cleaned(_look_up(kept, keys[text]) or "") for text in texts]
    except sqlite3.Error as error:
        raise input_error(cache, reason_of(error), "a file of answers", "move it away, and call again") from None


def refuse_nonsense(nonsense: int, answers: int, expected: str) -> None:
    """Log how many answers are useless; refuse more than half of them."""
    log.info("%d of %d answers without %s", nonsense, answers, expected)
    if 2 * nonsense > answers:
        found = f"{nonsense} of {answers} answers without {expected}"
        raise input_error("endpoint.model", found, f"{expected} in most answers", "name another model")


def _key_of(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _look_up(kept: sqlite3.Connection, key: str) -> str | None:
    row = kept.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
    return row and str(row[0])


def _cleaned(answer: str) -> str:
    return " ".join(THOUGHTS.sub("", answer).replace("\0", " ").split())


async def _send(prompt: str, texts: list[str], endpoint: Endpoint, store: Callable[[str, str], None]) -> None:
    """Ask about texts that are all different, and store each answer; stop asking at the first error."""
    queue, turn = deque(texts), asyncio.Lock()
    pause = 60 / endpoint.requests_per_minute if endpoint.requests_per_minute else 0

    async def wait(_: httpx.Request) -> None:
        # Before every attempt: at most one per pause.
        async with turn:
            await asyncio.sleep(pause)

    async def work(client: openai.AsyncOpenAI, counter: Counter) -> None:
        while queue:
            text = queue.popleft()
            try:
                store(text, await _answer(client, endpoint.model, prompt + text))
            except BaseException:
                queue.clear()
                raise
            counter.advance(1)

    with Counter(len(texts), "answers") as counter:
        async with _client(wait) as client:
            workers = (work(client, counter) for _ in range(endpoint.at_once))
            ends = await asyncio.gather(*workers, return_exceptions=True)
    for error in filter(None, ends):
        raise error


def _client(wait: Callable[[httpx.Request], Awaitable[None]]) -> openai.AsyncOpenAI:
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


async def _answer(client: openai.AsyncOpenAI, model: str, text: str) -> str:
    """Ask once, with retries while the server is busy or away; no message quotes the server, which may know the key."""
    fix = f"check the server, {URL}, {KEY} and endpoint.model, and call again"
    try:
        reply = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], temperature=0
        )
        match reply:
            case ChatCompletion(choices=[first, *_]):
                return (first.message.content or "").encode(errors="replace").decode()
        found = "no answer of a model (HTML or other JSON)"
    except openai.APIStatusError as error:
        found = f"status {error.status_code} {httpx.codes.get_reason_phrase(error.status_code)}"
    except openai.APITimeoutError:
        found = f"no answer in {PATIENCE:g} s"
    except openai.APIConnectionError as error:
        found = "an invalid certificate" if "CERTIFICATE" in str(error.__cause__) else "no connection"
    except (openai.OpenAIError, ValueError, AttributeError):
        found = "no answer of a model (HTML or other JSON)"
    raise input_error("endpoint", found, "an answer", fix)
