"""Re-rankers that read a query and a passage within a prompt, such as a chat template.

A tokenizer may join the border of two texts: ": " and "what" become ":" and " what". The prompt is therefore divided
where no text is joined to it, and the characters between that place and the text are tokenized with the text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cort.formats.artifacts import write_artifact
from cort.models.layout import PAIR_PROMPT
from cort.models.tokenizer import Template
from cort.runtime.errors import input_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: characters of private use that stand for the texts
QUERY_MARK, PASSAGE_MARK = "\ue000", "\ue001"
# Beginnings and ends of texts that tokenizers treat differently.
PROBES = ("a", "A", "1", "?", "(", ".", ",", '"', "'s", "-", "é", "中", "\n", "the end.", "a)")
FIX = "use another model, or its conversion to sequence classification"


@dataclass(frozen=True)
class PairPrompt:
    """A prompt with texts in it.

    :ivar query: what is tokenized with each query, before and after it; `passage` likewise.
    :ivar pieces: the rest: before the query, between the texts, after the passage.
    """

    query: tuple[str, str]
    passage: tuple[str, str]
    pieces: tuple[str, str, str]

    def frame(self, tokenizer: Tokenizer, template: Template) -> Template:
        """Put the tokens of the prompt into a template; those of the tokenizer's own around it must be there."""
        before, between, after = (tuple(_ids(tokenizer, piece)) for piece in self.pieces)
        query_cut, cut = (tuple(_ids(tokenizer, text[1])) for text in (self.query, self.passage))
        frame: dict[str, Any] = {"before": before, "between": between, "after": after + template.after}
        return replace(template, **frame, cut=cut, query_cut=query_cut, second_segment=0, prompt=True)

    def save(self, folder: Path, template: Template) -> None:
        """Write what the stage `tokenize` puts around texts, and how many tokens the rest of the prompt has."""
        texts = {"query": list(self.query), "passage": list(self.passage)}
        write_artifact(folder / PAIR_PROMPT, {**texts, "tokens": template.pair_extra})


def render(source: str | Path, module: Any, prompt: str | None) -> str:
    """Render the chat template of a Transformer module with `QUERY_MARK` and `PASSAGE_MARK`.

    :param prompt: the system's message.
    :raises InputError: without a template for the roles query and document.
    """
    formatter = module.input_formatter
    arguments = dict(module.processing_kwargs.get("chat_template", {}))
    arguments.pop("restore_suffix", None)
    if failure := formatter.pair_roles_failure(arguments):
        expected = "a chat template with the roles query and document, beside the tokenizer"
        raise input_error(source, f"no usable chat template: {failure}", expected, "add chat_template.jinja")
    messages = [formatter.pair_to_messages((QUERY_MARK, PASSAGE_MARK))]
    if prompt:
        messages = formatter.prepend_prompt_to_messages(messages, prompt)
    return str(module.processor.apply_chat_template(messages[0], tokenize=False, **arguments))


def divide(source: str | Path, text: str, tokenizer: Tokenizer) -> PairPrompt:
    """Divide a prompt with `QUERY_MARK` and `PASSAGE_MARK` where no text is joined to it.

    :raises InputError: unless it has each of them once, in this order.
    """
    before, found, rest = text.partition(QUERY_MARK)
    between, second, after = rest.partition(PASSAGE_MARK)
    if not (found and second) or any(mark in before + between + after for mark in (QUERY_MARK, PASSAGE_MARK)):
        raise input_error(source, "a prompt without one query before one passage", "each once", FIX)
    head, query_start = _border(source, tokenizer, before, True)
    # What follows the query may be divided twice; the end of the piece goes with the passage.
    between, passage_start = _border(source, tokenizer, between, True)
    query_end, between = _border(source, tokenizer, between, False)
    passage_end, tail = _border(source, tokenizer, after, False)
    return PairPrompt((query_start, query_end), (passage_start, passage_end), (head, between, tail))


def _border(source: str | Path, tokenizer: Tokenizer, piece: str, precedes: bool) -> tuple[str, str]:
    """Divide a piece, next to a text which it precedes or follows, where no text is joined to it."""
    for count in range(len(piece) + 1):
        cut = len(piece) - count if precedes else count
        first, last = piece[:cut], piece[cut:]
        sides = [(first, last + text) if precedes else (text + first, last) for text in PROBES]
        if all(_ids(tokenizer, a) + _ids(tokenizer, b) == _ids(tokenizer, a + b) for a, b in sides):
            return first, last
    found = "a tokenizer that joins words of a prompt with those of texts"
    raise input_error(source, found, "one that divides texts into words", FIX)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids
