"""Answers of several systems side by side, as wide as the terminal."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

from cort.online.searcher import Answer
from cort.online.timing import PARTS

BETWEEN = "  "
#: what a column needs for rank, score and a word or two
NARROWEST = 24


def show(answers: Sequence[Answer], texts: Sequence[Sequence[str]], width: int) -> str:
    """Set one column per answer, or the answers one below the other where the terminal is too narrow.

    :param texts: of the documents of each answer.
    :param width: characters of a line.
    """
    blocks = [_lines(answer, some) for answer, some in zip(answers, texts, strict=True)]
    column = (width - len(BETWEEN) * (len(answers) - 1)) // len(answers)
    if column < NARROWEST:
        return "\n".join(_fit(line, width).rstrip() for block in blocks for line in (*_cells(block, width), ""))
    sides = [_cells(block, column) for block in blocks]
    rows = itertools.zip_longest(*sides, fillvalue=" " * column)
    return "\n".join(BETWEEN.join(_fit(cell, column) for cell in row).rstrip() for row in rows)


def timings(milliseconds: dict[str, float]) -> list[str]:
    """Words for the parts that ran, and for the total."""
    return [f"{name} {milliseconds[name]:.1f}" for name in (*PARTS, "total") if name in milliseconds]


def _lines(answer: Answer, texts: Sequence[str]) -> tuple[str, list[tuple[str, str, str]], list[str]]:
    rows = [(str(one.rank), text, f"{one.score:.4g}") for one, text in zip(answer.results, texts, strict=True)]
    return f"{answer.system}: {answer.milliseconds['total']:.1f} ms", rows, timings(answer.milliseconds)


def _cells(block: tuple[str, list[tuple[str, str, str]], list[str]], width: int) -> list[str]:
    title, rows, words = block
    rank = max((len(row[0]) for row in rows), default=0)
    score = max((len(row[2]) for row in rows), default=0)
    body = [f"{number:>{rank}} {_fit(text, width - rank - score - 2)} {value:>{score}}" for number, text, value in rows]
    return [title, "-" * width, *(body or ["(nothing found)"]), "-" * width, *_wrap(words, width)]


def _wrap(words: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        joined = f"{lines[-1]}, {word}" if lines[-1] else word
        if len(joined) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = joined
    return lines


def _fit(text: str, width: int) -> str:
    """Cut or pad a text to columns of a terminal; some characters take two, others none or would move the cursor."""
    shown, used = [], 0
    for character in text:
        printable = character if character.isprintable() else " "
        size = 0 if unicodedata.combining(printable) else 2 if unicodedata.east_asian_width(printable) in "WF" else 1
        if used + size > width:
            break
        shown.append(printable)
        used += size
    return "".join(shown) + " " * (width - used)
