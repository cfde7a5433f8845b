"""Ask an OpenAI-compatible server about texts, each once: answers are kept in a file that all experiments share.

An answer is kept by model, prompt and text as soon as it comes: neither a killed job nor another one asks again. One
process asks at a time, so that limits hold. Address and key come from the environment, and appear in no message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import openai
from openai.types.chat import ChatCompletion

from cort.config.collection import LanguageModel
from cort.models.service import Answers, Unusable, kept_answers, key_of, send
from cort.runtime.errors import input_error
from cort.runtime.progress import Counter

log = logging.getLogger(__name__)

# What some models write before their answer.
THOUGHTS = re.compile("<think>.*?</think>", re.DOTALL)
TABLE = "answers (key TEXT PRIMARY KEY, answer TEXT NOT NULL)"


def ask(prompt: str, texts: Sequence[str], endpoint: LanguageModel, cache: str) -> list[str]:
    """Return the answer to each text, on one line and without what a model thinks aloud; an answer may be empty.

    :param prompt: what stands before each text.
    :param cache: SQLite file of answers, made if there is none.
    :raises InputError: if more requests are needed than allowed, before the first; if the server fails, after the
        answers to requests under way are kept.
    """
    keys = {text: key_of(endpoint.model, prompt, text).hex() for text in texts}
    kept: Answers[str]
    with kept_answers(cache, TABLE) as kept:
        missing = [text for text, key in keys.items() if kept.get(key) is None]
        counts = len(missing), len(keys) - len(missing), endpoint.max_requests
        log.info("%d requests needed, %d answers cached; limit: %d requests", *counts)
        if len(missing) > endpoint.max_requests:
            found, fix = f"{len(missing)} requests needed", "raise it, or ask for less (`sample`, `depth`)"
            raise input_error("endpoint.max_requests", found, f"at most {endpoint.max_requests}", fix)

        async def ask_one(client: openai.AsyncOpenAI, text: str) -> int:
            kept.keep([(keys[text], await _answer(client, prompt + text, endpoint.model))])
            return 1

        if missing:
            with Counter(len(missing), "answers") as counter:
                send(missing, ask_one, counter, endpoint, "endpoint.model")
        return [_cleaned(kept.get(keys[text]) or "") for text in texts]


def refuse_nonsense(nonsense: int, answers: int, expected: str) -> None:
    """Log how many answers are useless; refuse more than half of them."""
    log.info("%d of %d answers without %s", nonsense, answers, expected)
    if 2 * nonsense > answers:
        found = f"{nonsense} of {answers} answers without {expected}"
        raise input_error("endpoint.model", found, f"{expected} in most answers", "name another model")


def _cleaned(answer: str) -> str:
    return " ".join(THOUGHTS.sub("", answer).replace("\0", " ").split())


async def _answer(client: openai.AsyncOpenAI, question: str, model: str) -> str:
    messages: Any = [{"role": "user", "content": question}]
    reply = await client.chat.completions.create(model=model, messages=messages, temperature=0)
    if not isinstance(reply, ChatCompletion) or not reply.choices:
        raise Unusable("no answer of a model (HTML or other JSON)")
    return (reply.choices[0].message.content or "").encode(errors="replace").decode()
