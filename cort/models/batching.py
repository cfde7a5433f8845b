"""From token ids to padded tensors: special tokens, truncation, and batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cort.formats.shards import Tokens
from cort.models.layout import TASKS
from cort.models.tokenizer import Template
from cort.runtime.errors import input_error

if TYPE_CHECKING:
    from torch import Tensor

#: row numbers, and numbers of tokens by row
Rows: TypeAlias = npt.NDArray[np.integer]
Lengths: TypeAlias = npt.NDArray[np.integer]
Ids: TypeAlias = npt.NDArray[np.int32]
Frame = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # token ids, segment ids


@dataclass(frozen=True)
class Sequences:
    """Sequences for a transformer, created on demand: ``frame(i)`` has ``lengths[i]`` tokens.

    `source` is the file they come from, for error messages; `kind` that of single texts, "query" or "passage".
    """

    lengths: Lengths
    frame: Callable[[int], Frame]
    template: Template
    source: str = ""
    kind: str | None = None

    def take(self, rows: Rows) -> Sequences:
        """Select rows, in this order."""
        return replace(self, lengths=self.lengths[rows], frame=lambda row: self.frame(int(rows[row])))

    def batch(self, rows: Rows) -> dict[str, Any]:
        """Frame and pad rows; tensors of shape (rows, longest), and the task as sentence-transformers names it.

        :raises InputError: for a token id that is not in the tokenizer's vocabulary.
        """
        batch: dict[str, Any] = pad([self.frame(int(row)) for row in rows], self.template.pad, self.template.left)
        for token in map(int, batch["input_ids"].aminmax()):
            if not 0 <= token < self.template.vocabulary:
                expected = f"ids below the tokenizer's {self.template.vocabulary}"
                raise input_error(self.source, f"the token id {token}", expected, "delete it and tokenize again")
        return batch | ({"task": TASKS[self.kind]} if self.kind else {})


@dataclass(frozen=True)
class FramedTexts:
    """Texts of a token cache and a kind, each truncated to `max_length` tokens, special tokens included."""

    tokens: Tokens
    template: Template
    max_length: int
    kind: str | None = None

    def lengths(self, rows: Rows) -> Lengths:
        """Count the tokens of framed texts."""
        lengths: Lengths = np.minimum(self.tokens.lengths[rows] + self.template.extra, self.max_length)
        return lengths

    def frame(self, row: int) -> Frame:
        """Frame the text of a row."""
        return frame_text(self.tokens[row], self.template, self.max_length)

    def sequences(self, rows: Rows) -> Sequences:
        """Frame the texts of some rows."""
        lengths, source = self.lengths(rows), str(self.tokens.path)
        return Sequences(lengths, lambda row: self.frame(int(rows[row])), self.template, source, self.kind)


def frame_text(tokens: Ids, template: Template, max_length: int) -> Frame:
    """Truncate a text to `max_length` tokens, special tokens included, all in the same segment."""
    kept = tokens[: max_length - template.extra]
    ids = np.concatenate([template.before, kept, template.after]).astype(np.int64)
    return ids, np.full(len(ids), template.segment, dtype=np.int64)


def frame_pair(query: Ids, passage: Ids, template: Template, query_length: int | None, max_length: int) -> Frame:
    """Join a query of up to `query_length` tokens and a passage, up to `max_length`; both include special tokens.

    Without a `query_length`, the longer text loses tokens until both fit, as with `longest_first` of transformers.
    """
    room = max_length - template.pair_extra
    if query_length is not None:
        query = query[: query_length - template.query_extra]
    else:
        query = query[: room // 2 if len(query) <= len(passage) else room - min(len(passage), room // 2)]
    room -= len(query)
    if len(passage) > room:
        passage = np.concatenate([passage[: max(room - len(template.cut), 0)], template.cut]).astype(np.int32)
    first = np.concatenate([template.before, query, template.between])
    # The tokens between the texts belong to the first segment, like BERT's `[SEP]`.
    ids = np.concatenate([first, passage, template.after]).astype(np.int64)
    segments = np.full(len(ids), template.second_segment, dtype=np.int64)
    segments[: len(first)] = 0
    return ids, segments


def pad(frames: Sequence[Frame], pad_id: int, left: bool = False) -> dict[str, Tensor]:
    """Stack frames into ``input_ids``, ``attention_mask`` and ``token_type_ids`` of shape (batch, longest)."""
    import torch

    # An empty text has no token, if its tokenizer adds none; models need a column.
    shape = len(frames), max(1, *(len(ids) for ids, _ in frames))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    mask, segments = np.zeros((2, *shape), dtype=np.int64)
    for row, (ids, types) in enumerate(frames):
        part = slice(shape[1] - len(ids), None) if left else slice(len(ids))
        input_ids[row, part], mask[row, part], segments[row, part] = ids, 1, types
    batch = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": segments}
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def by_length(lengths: Lengths, token_budget: int) -> Iterator[npt.NDArray[np.intp]]:
    """Split rows, longest first, into batches of at most `token_budget` padded tokens, or of a single longer row.

    The order depends only on lengths (ties stay in file order), so the same rows always form the same batches.
    """
    rows = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(rows):
        longest = max(int(lengths[rows[start]]), 1)
        size = max(token_budget // longest, 1)
        yield rows[start : start + size]
        start += size
