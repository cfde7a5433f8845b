"""Ask a server with OpenAI's interface for the vectors of texts, each text once.

Vectors are kept in a file that all experiments share, by model, dimension and text with its prompt.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import openai
from openai.types import CreateEmbeddingResponse

from cort.config.collection import RequestLimits, TextLimits
from cort.config.models import Service
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
from cort.runtime.errors import input_error, shorten
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

#: rows of float32, (texts, e)
Vectors: TypeAlias = npt.NDArray[np.float32]
TABLE = "vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL) WITHOUT ROWID"
#: the key that names the model, in errors
MODEL = "encoders.endpoint"
# Allowed deviation from unit length.
TOLERANCE = 1e-3
#: ids and texts, with their prompts
Block: TypeAlias = tuple[Sequence[str], Sequence[str]]


class Asked(Service, TextLimits):
    """A model behind an API, and limits on what is asked of it."""


def name_of(service: Service) -> str:
    """Return what stands for the model's weights in files of its vectors: passages and queries must agree in it."""
    prompts = (service.query_prompt or "", service.passage_prompt or "")
    parts = ("endpoint", service.endpoint, str(service.dimension), service.similarity, *prompts)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def embed(read: Callable[[], Iterable[Block]], service: Asked, cache: str) -> Iterator[tuple[Sequence[str], Vectors]]:
    """Yield the ids and vectors, (texts, e), of each block of texts; blank texts get zeros.

    :param read: called twice, to count what is needed before the first request.
    :param cache: SQLite file of vectors, made if there is none.
    :raises InputError: if more is needed than allowed, before the first request; if the server fails, or sends other
        than one finite vector per text, all of one length, after the answers to requests under way are kept.
    """
    kept: Answers[bytes]
    with kept_answers(cache, TABLE) as kept:

        async def ask_one(client: openai.AsyncOpenAI, batch: list[str]) -> int:
            rows = await _request(client, batch, service)
            kept.keep((_key(service, text), row.tobytes()) for text, row in zip(batch, rows, strict=True))
            return len(batch)

        (total, requests, tokens), normalized, width = _count(read(), service, kept), 0, service.dimension
        refuse_more(total, requests, tokens, service)
        with Counter(total, "texts") as counter:
            for ids, texts in read():
                if missing := _missing(texts, service, kept):
                    send(batches_of(missing, service), ask_one, counter, service, MODEL)
                matrix = _read(texts, service, kept, width)
                width = matrix.shape[1]
                if service.similarity == "cosine":
                    normalized += normalize(matrix)
                yield ids, matrix
    if normalized:
        log.info("%d vectors came with another length than 1, and were normalized", normalized)


def embed_now(texts: Sequence[str], service: Service) -> Vectors:
    """Ask for the vectors of a few texts, (texts, e), in one request, and keep none of them.

    :raises InputError: as `embed` does.
    """
    found: list[Vectors] = []

    async def ask_one(client: openai.AsyncOpenAI, batch: Sequence[str]) -> int:
        found.extend(await _request(client, batch, service))
        return len(batch)

    with Counter(0, "texts") as counter:
        send([texts], ask_one, counter, RequestLimits(), MODEL)
    matrix = np.stack(found)
    if service.similarity == "cosine":
        normalize(matrix)
    return matrix


def normalize(matrix: Vectors) -> int:
    """Give vectors, (texts, e), length 1 in place, except zeros; return how many had another length."""
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)  # (texts, 1)
    matrix /= np.where(lengths > 0, lengths, 1)
    return int(((np.abs(lengths - 1) > TOLERANCE) & (lengths > 0)).sum())


def _key(service: Service, text: str) -> bytes:
    return key_of("embedding", service.endpoint, str(service.dimension), text)


def _missing(texts: Iterable[str], service: Service, kept: Answers[bytes]) -> list[str]:
    """List the different texts of which there is no vector yet."""
    return [text for text in dict.fromkeys(texts) if text.strip() and kept.get(_key(service, text)) is None]


def _count(blocks: Iterable[Block], service: Asked, kept: Answers[bytes]) -> tuple[int, int, int]:
    """Count the texts, requests and tokens that are needed."""
    texts = requests = tokens = 0
    for _, block in blocks:
        for batch in batches_of(_missing(block, service, kept), service):
            texts, requests = texts + len(batch), requests + 1
            tokens += sum(map(tokens_of, batch))
    return texts, requests, tokens


async def _request(client: openai.AsyncOpenAI, batch: Sequence[str], service: Service) -> list[Vectors]:
    """Ask for the vectors of some texts, check them, and put them, (e,) each, into the order of the texts."""
    given: dict[str, Any] = {} if service.dimension is None else {"dimensions": service.dimension}
    with naming_size(f"{len(batch)} texts, the longest of about {max(map(tokens_of, batch))} tokens"):
        reply = await client.embeddings.create(model=service.endpoint, input=list(batch), **given)
    if not isinstance(reply, CreateEmbeddingResponse) or not isinstance(reply.data, list):
        raise Unusable("no vectors (HTML or other JSON)")
    if sorted(one.index for one in reply.data) != list(range(len(batch))):
        raise Unusable(f"{len(reply.data)} vectors for {len(batch)} texts")
    rows = [np.asarray(one.embedding, np.float32) for one in sorted(reply.data, key=lambda one: one.index)]
    for text, row in zip(batch, rows, strict=True):
        if row.ndim != 1 or not np.isfinite(row).all() or not row.any():
            raise Unusable(f"zeros, NaN or infinite numbers for the text {shorten(text)}")
        if len(row) != (service.dimension or len(rows[0])):
            raise Unusable(f"vectors of {len(row)} numbers instead of {service.dimension or len(rows[0])}")
    return rows


def _read(texts: Sequence[str], service: Service, kept: Answers[bytes], width: int | None) -> Vectors:
    """Return the vectors of a block, (texts, e)."""
    stored = enumerate(kept.get(_key(service, text)) for text in texts)
    rows = {place: np.frombuffer(vector, np.float32) for place, vector in stored if vector is not None}
    widths = {*map(len, rows.values())} | ({width} if width else set())
    if len(widths) > 1:
        fix = "set `dimension`, or name a model that keeps to one"
        raise input_error(MODEL, f"vectors of {sorted(widths)} numbers", "one length", fix)
    matrix = np.zeros((len(texts), *(widths or {1})), np.float32)  # (texts, e)
    for place, row in rows.items():
        matrix[place] = row
    return matrix
