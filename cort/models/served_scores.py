"""Ask a server with Cohere's interface for the scores of pairs of a query and a passage, each pair once.

Scores are kept in a file that all experiments share, by model and texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import openai
from pydantic import BaseModel

from cort.config.collection import TextLimits
from cort.models.service import (
    Answers,
    Unusable,
    batches_of,
    kept_answers,
    key_of,
    naming_size,
    refuse_more,
    send,
    tokens_of,
)
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

Scores: TypeAlias = npt.NDArray[np.float32]
TABLE = "scores (key BLOB PRIMARY KEY, score REAL NOT NULL) WITHOUT ROWID"
#: the key that names the model, in errors
MODEL = "rerankers.endpoint"


class Request(NamedTuple):
    """Some passages to be scored for a query."""

    query: str
    passages: Sequence[str]


class Result(BaseModel):
    """The score of a passage by its place in the request; other fields are ignored."""

    index: int
    relevance_score: float


class Reply(BaseModel):
    """What the server answers, passages in any order."""

    results: list[Result]


def score(pairs: Sequence[tuple[str, str]], model: str, limits: TextLimits, cache: str) -> Scores:
    """Return the score of each pair of a query and a passage, (pairs,).

    :param cache: SQLite file of scores, made if there is none.
    :raises InputError: if more is needed than allowed, before the first request; if the server fails, or sends other
        than one finite score per passage, after the answers to requests under way are kept.
    """
    kept: Answers[float]
    with kept_answers(cache, TABLE) as kept:
        keys = [_key(model, *pair) for pair in pairs]
        missing: dict[str, dict[str, None]] = {}
        for key, (query, passage) in zip(keys, pairs, strict=True):
            if kept.get(key) is None:
                missing.setdefault(query, {})[passage] = None
        requests = list(_requests(missing, limits))
        number = sum(len(request.passages) for request in requests)
        log.info("%d of %d pairs to ask for", number, len(pairs))
        refuse_more(number, len(requests), sum(map(_tokens, requests)), limits)

        async def ask_one(client: openai.AsyncOpenAI, request: Request) -> int:
            scores = await _ask(client, request, model)
            answered = (_key(model, request.query, passage) for passage in request.passages)
            kept.keep(zip(answered, scores, strict=True))
            return len(request.passages)

        if requests:
            with Counter(number, "pairs") as counter:
                send(requests, ask_one, counter, limits, MODEL)
        return np.array([kept.get(key) for key in keys], np.float32)


def score_now(query: str, passages: Sequence[str], model: str, limits: TextLimits) -> Scores:
    """Return the scores of some passages for a query, (passages,), and keep none of them.

    :raises InputError: as `score` does, but for limits on all requests together.
    """
    found: dict[str, float] = {}

    async def ask_one(client: openai.AsyncOpenAI, request: Request) -> int:
        found.update(zip(request.passages, await _ask(client, request, model), strict=True))
        return len(request.passages)

    requests = _requests({query: dict.fromkeys(passages)}, limits)
    with Counter(0, "pairs") as counter:
        send(requests, ask_one, counter, limits, MODEL)
    return np.array([found[passage] for passage in passages], np.float32)


def _key(model: str, query: str, passage: str) -> bytes:
    return key_of("rerank", model, query, passage)


def _requests(passages_of: Mapping[str, Iterable[str]], limits: TextLimits) -> Iterator[Request]:
    for query, passages in passages_of.items():
        for batch in batches_of(passages, limits, tokens_of(query)):
            yield Request(query, batch)


def _tokens(request: Request) -> int:
    return tokens_of(request.query) * len(request.passages) + sum(map(tokens_of, request.passages))


async def _ask(client: openai.AsyncOpenAI, request: Request, model: str) -> list[float]:
    """Ask for the scores of one request, and check and order them as its passages."""
    number = len(request.passages)
    passages = list(request.passages)
    body = {"model": model, "query": request.query, "documents": passages, "top_n": number, "return_documents": False}
    with naming_size(f"{number} passages and a query, together of about {_tokens(request)} tokens"):
        reply = await client.post("/rerank", cast_to=object, body=body)
    results = sorted(Reply.model_validate(reply).results, key=lambda result: result.index)
    if len(results) != number:
        raise Unusable(f"{len(results)} scores for {number} passages")
    if [result.index for result in results] != list(range(number)):
        raise Unusable(f"{number} scores, but not one for each passage")
    scores = [result.relevance_score for result in results]
    if not np.isfinite(np.array(scores, np.float32)).all():
        raise Unusable("scores that are NaN or infinite")
    return scores
