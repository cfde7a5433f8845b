"""From token ids to padded tensors: special tokens, truncation, and batches of similar length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats.records import Integers, offsets_of
from cort.formats.shards import Tokens
from cort.models.layout import TASKS
from cort.models.tokenizer import Template

if TYPE_CHECKING:
    import torch
    from torch import Tensor

#: row numbers, and numbers of tokens by row
Rows: TypeAlias = Integers
Lengths: TypeAlias = Integers

# Padded tokens per batch: few fit in a CPU's cache, many fill a GPU, but more need more padding (for SQuAD's passages
# sorted by length, 0.1 % at 1,024, 2 % at 16,384, 7 % at 65,536; unsorted 67 %). On one core of an EPYC, 1,024 to 4,096
# differ by 3 %; on one with AVX2, 2,048 take nine tenths of the time of 1,024. Not a setting: padding affects the last
# bits of the result.
TOKEN_BUDGETS = {"cpu": 2_048, "cuda": 16_384}
# Batches per block: half a minute of a BERT-base on a few cores. Not a setting either.
BATCHES_PER_BLOCK = 64
# What a model computes for a sequence depends, in its last bits, on the padded length, and on places in the tiles of
# matrix products, which hold a few rows. With lengths and rows in these multiples, it does not depend on the others.
WIDTH, ROWS = 8, 8
# Padded tokens per token at most in batches whose layers read no padding, but embeddings and pooling do.
PADDING = 4


class Part(NamedTuple):
    """A part of each sequence: the first `counts[i]` tokens of a row of texts, or a constant, in one segment."""

    source: Tokens | Sequence[int]
    rows: Rows
    counts: Lengths
    segment: int

    def take(self, chosen: Rows) -> Part:
        """Select sequences."""
        return self._replace(rows=self.rows[chosen], counts=self.counts[chosen])

    def among(self, before: int, after: int) -> Part:
        """Add sequences without this part before and after."""
        around = before, after
        return self._replace(rows=np.pad(self.rows, around), counts=np.pad(self.counts, around))

    def ids(self) -> npt.NDArray[np.int32]:
        """Concatenate the tokens of all sequences, (sum of counts,)."""
        if isinstance(self.source, Tokens):
            return self.source.beginnings(self.rows, self.counts)
        return np.tile(np.array(self.source, np.int32), int(self.counts.sum()) // max(len(self.source), 1))


def constant(tokens: Sequence[int], times: Lengths, segment: int) -> Part:
    """Make a part of the same tokens in each sequence, `times[i]` times."""
    return Part(tokens, times, times * len(tokens), segment)


@dataclass(frozen=True)
class Sequences:
    """Sequences for a transformer, each of some parts; their tokens are read when a batch is made.

    `kind` is that of single texts, "query" or "passage".
    """

    parts: tuple[Part, ...]
    template: Template
    kind: str | None = None

    @cached_property
    def lengths(self) -> Lengths:
        """Numbers of tokens, (sequences,)."""
        lengths: Lengths = np.sum([part.counts for part in self.parts], axis=0)
        return lengths

    def take(self, chosen: Rows) -> Sequences:
        """Select sequences, in this order."""
        return Sequences(tuple(part.take(chosen) for part in self.parts), self.template, self.kind)

    def joined(self, others: Sequences) -> Sequences:
        """Append sequences with a template of the same padding; `kind` becomes theirs."""
        ours, theirs = len(self.lengths), len(others.lengths)
        parts = [part.among(0, theirs) for part in self.parts] + [part.among(ours, 0) for part in others.parts]
        return replace(others, parts=tuple(parts))

    def batch(self, chosen: Rows, width: int = 1) -> dict[str, Any]:
        """Pad sequences: ``input_ids``, ``attention_mask`` and ``token_type_ids`` of shape (chosen, longest).

        The ``task`` names the kind of texts as sentence-transformers does.

        :param width: columns at least.
        """
        import torch

        some = self.take(chosen)
        # An empty text has no token, if its tokenizer adds none; models need a column.
        shape = len(chosen), int(some.lengths.max(initial=width))
        starts = shape[1] * np.arange(shape[0]) + (shape[1] - some.lengths if self.template.left else 0)
        ids = np.full(shape, self.template.pad, np.int64)
        mask, segments = np.zeros((2, *shape), np.int64)
        for part in some.parts:
            places = consecutive(starts, part.counts)
            ids.reshape(-1)[places], mask.reshape(-1)[places] = part.ids(), 1
            segments.reshape(-1)[places] = part.segment
            starts = starts + part.counts
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        batch: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return batch | ({"task": TASKS[self.kind]} if self.kind else {})


def consecutive(starts: Rows, counts: Lengths) -> Integers:
    """Concatenate the ranges that begin at `starts` and have `counts` numbers."""
    before: Integers = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


class Packing(NamedTuple):
    """Places of the tokens in a padded batch, (tokens,); the first token of each sequence; the longest sequence."""

    places: Tensor
    starts: Tensor
    longest: int

    @classmethod
    def of(cls, lengths: Lengths, width: int) -> Packing:
        """Describe sequences of these lengths, which are padded on the right to a width."""
        import torch

        places = consecutive(width * np.arange(len(lengths)), lengths)
        starts = offsets_of(lengths).astype(np.int32)
        return cls(torch.from_numpy(places), torch.from_numpy(starts), int(lengths.max(initial=1)))

    def on(self, device: torch.device) -> Packing:
        """Copy to a device."""
        return self._replace(places=sent(self.places, device), starts=sent(self.starts, device))


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to a device, from pinned memory and asynchronously, so that the next batch can be prepared meanwhile."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


@dataclass(frozen=True)
class FramedTexts:
    """Texts of a token cache and a kind, each truncated to `max_length` tokens, special tokens included."""

    tokens: Tokens
    template: Template
    max_length: int
    kind: str | None = None

    def lengths(self, rows: Rows) -> Lengths:
        """Count the tokens of framed texts."""
        return self.sequences(rows).lengths

    def ids(self, rows: Rows) -> pa.Array:
        """Look up the ids of the texts in consecutive rows."""
        return self.tokens.ids.slice(int(rows[0]), len(rows)).combine_chunks()

    def sequences(self, rows: Rows) -> Sequences:
        """Frame the texts of some rows, all tokens in the same segment."""
        template, once = self.template, np.ones_like(rows)
        kept = np.minimum(self.tokens.lengths[rows], self.max_length - template.extra)
        parts = (
            constant(template.before, once, template.segment),
            Part(self.tokens, rows, kept, template.segment),
            constant(template.after, once, template.segment),
        )
        return Sequences(parts, template, self.kind)


def framed_pairs(
    queries: Part, passages: Part, template: Template, query_length: int | None, max_length: int
) -> Sequences:
    """Join queries of up to `query_length` tokens and passages, up to `max_length`; both include special tokens.

    Without a `query_length`, the longer text loses tokens until both fit, as with `longest_first` of transformers.

    :param queries: whole texts, as are `passages`.
    """
    room, once = max_length - template.pair_extra, np.ones_like(queries.counts)
    if query_length is not None:
        most = np.full_like(queries.counts, query_length - template.query_extra)
    else:
        half, shorter = room // 2, queries.counts <= passages.counts
        most = np.where(shorter, half, room - np.minimum(passages.counts, half))
    query, query_end = _truncated(queries, most, template.query_cut, 0)
    passage, passage_end = _truncated(
        passages, room - query.counts - query_end.counts, template.cut, template.second_segment
    )
    parts = (
        constant(template.before, once, 0),
        *(query, query_end),
        # The tokens between the texts belong to the first segment, like BERT's `[SEP]`.
        constant(template.between, once, 0),
        *(passage, passage_end),
        constant(template.after, once, template.second_segment),
    )
    return Sequences(parts, template)


def _truncated(texts: Part, most: Lengths, end: Sequence[int], segment: int) -> tuple[Part, Part]:
    """Cut longer texts, and end these with the same tokens."""
    longer = texts.counts > most
    kept = np.where(longer, np.maximum(most - len(end), 0), texts.counts)
    return texts._replace(counts=kept, segment=segment), constant(end, longer.astype(np.int64), segment)


def by_length(lengths: Lengths, token_budget: int, packed: bool = False) -> Iterator[npt.NDArray[np.intp]]:
    """Split rows, longest first, into batches of at most `token_budget` padded tokens, or of a single longer row.

    The order depends only on lengths (ties stay in file order), so the same rows always form the same batches.

    :param packed: count tokens without padding, up to `PADDING` padded ones for each.
    """
    rows = np.argsort(-np.asarray(lengths), kind="stable")
    ends = np.cumsum(lengths[rows])
    start = 0
    while start < len(rows):
        longest = max(int(lengths[rows[start]]), 1)
        size = max((PADDING if packed else 1) * token_budget // longest, 1)
        if packed:
            before = ends[start] - lengths[rows[start]]
            size = min(size, max(int(np.searchsorted(ends, before + token_budget, "right")) - start, 1))
        yield rows[start : start + size]
        start += size


def widths_of(lengths: Lengths, longest: int) -> Lengths:
    """Round lengths up to multiples of `WIDTH`, up to the longest that a model reads."""
    rounded: Lengths = np.clip(-(-lengths // WIDTH) * WIDTH, 1, np.maximum(lengths, longest))
    return rounded


def apart(keys: Sequence[Lengths], token_budget: int, full: bool = False) -> Iterator[npt.NDArray[np.intp]]:
    """Split rows into batches of equal keys, with a multiple of `ROWS` rows: the last one is repeated.

    :param keys: widths, (rows,), and whatever else the shapes of a model's computation depend on.
    :param full: give batches of equal keys as many rows, for convolutions.
    """
    rows = np.lexsort(keys[::-1])
    changes = np.any([key[rows][1:] != key[rows][:-1] for key in keys], axis=0)
    for alike in np.split(rows, np.flatnonzero(changes) + 1) if len(rows) else ():
        size = max(token_budget // max(int(keys[0][alike[0]]), 1) // ROWS, 1) * ROWS
        for start in range(0, len(alike), size):
            some = alike[start : start + size]
            yield np.pad(some, (0, -len(some) % (size if full else ROWS)), mode="edge")


def padded_tokens(lengths: Lengths, token_budget: int) -> int:
    """Count the tokens of rows, padded in the batches of `by_length`."""
    return sum(len(rows) * int(lengths[rows[0]]) for rows in by_length(lengths, token_budget))
