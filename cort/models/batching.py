"""From token ids to padded tensors: framing, cutting, and batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from cort.models.tokenizer import Template
from cort.system.errors import input_error

Ids = npt.NDArray[np.int32]
Frame = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # token ids, segment ids


@dataclass(frozen=True)
class Sequences:
    """Sequences for a transformer, each made when it is asked for: `frame` of row i has ``lengths[i]`` tokens.

    `source` is the file they come from.
    """

    lengths: npt.NDArray[np.integer]
    frame: Callable[[int], Frame]
    template: Template
    source: str = ""

    def take(self, rows: npt.NDArray[np.integer]) -> Sequences:
        """Choose some, in this order."""
        return replace(self, lengths=self.lengths[rows], frame=lambda row: self.frame(int(rows[row])))

    def batch(self, rows: npt.NDArray[np.integer]) -> dict[str, torch.Tensor]:
        """Make and pad some; tensors of shape (rows, longest).

        :raises InputError: a token that the tokenizer does not have.
        """
        batch = pad([self.frame(int(row)) for row in rows], self.template.pad)
        for token in map(int, torch.aminmax(batch["input_ids"])):
            if not 0 <= token < self.template.vocabulary:
                expected = f"ids below the tokenizer's {self.template.vocabulary}"
                raise input_error(self.source, f"the token id {token}", expected, "delete it and tokenize again")
        return batch


def frame_text(tokens: Ids, template: Template, max_length: int, segment: int) -> Frame:
    """Cut one text to `max_length` tokens, special ones included, all of the same segment."""
    kept = tokens[: max_length - template.extra]
    ids = np.concatenate([template.before, kept, template.after]).astype(np.int64)
    # An empty text, and a tokenizer without special tokens.
    ids = ids if len(ids) else np.array([template.pad], np.int64)
    return ids, np.full(len(ids), segment, dtype=np.int64)


def frame_pair(query: Ids, passage: Ids, template: Template, query_length: int, max_length: int) -> Frame:
    """Join a query cut to `query_length` tokens and a passage, `max_length` in all, special tokens included in both."""
    query = query[: query_length - template.extra]
    passage = passage[: max_length - template.pair_extra - len(query)]
    first = np.concatenate([template.before, query, template.between])
    # The boundary token after the first text belongs to its segment, as in BERT's `[SEP]`.
    ids = np.concatenate([first, passage, template.after]).astype(np.int64)
    segments = np.full(len(ids), template.second_segment, dtype=np.int64)
    segments[: len(first)] = 0
    return ids, segments


def pad(frames: Sequence[Frame], pad_id: int) -> dict[str, torch.Tensor]:
    """Stack frames to ``input_ids``, ``attention_mask`` and ``token_type_ids`` of shape (batch, longest)."""
    shape = len(frames), max(len(ids) for ids, _ in frames)
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    mask, segments = np.zeros((2, *shape), dtype=np.int64)
    for row, (ids, types) in enumerate(frames):
        input_ids[row, : len(ids)] = ids
        mask[row, : len(ids)] = 1
        segments[row, : len(ids)] = types
    batch = {"input_ids": input_ids, "attention_mask": mask, "token_type_ids": segments}
    return {name: torch.from_numpy(array) for name, array in batch.items()}


def by_length(lengths: npt.NDArray[np.integer], token_budget: int) -> Iterator[npt.NDArray[np.intp]]:
    """Cut the rows, longest first, into batches of at most `token_budget` padded tokens; a longer row stands alone.

    The order depends on the lengths alone (ties keep file order), so the same rows always meet in the same batches.
    """
    rows = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(rows):
        longest = max(int(lengths[rows[start]]), 1)
        size = max(token_budget // longest, 1)
        yield rows[start : start + size]
        start += size
