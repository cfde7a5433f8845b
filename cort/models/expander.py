"""The model of doc2query (Nogueira et al., 2019): an encoder-decoder that says which queries a passage answers.

On disk a transformers folder of a T5 or another encoder-decoder, with its tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Ids, Sequences, frame_text
from cort.models.generation import end_tokens
from cort.models.loading import SEQ2SEQ, load_transformer
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import check_length, count_tokens, single
from cort.system.errors import input_error

# What says how a query begins, ends, and is filled up.
NEEDED = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
# Of a target, what counts for nothing.
NO_TOKEN = -100


class Expander(nn.Module):
    """Tell how improbable queries are, given their passages."""

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        self.transformer = transformer

    @property
    def end(self) -> int:
        """Token that ends a query."""
        return end_tokens(self.transformer.config)[0]

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Sum the negative logarithms of the probabilities of a query's tokens, with its end; returns (batch,).

        :param batch: ``input_ids`` and ``attention_mask`` of passages, ``labels`` of queries.
        """
        labels = batch["labels"]  # (batch, length)
        start = labels.new_full((len(labels), 1), self.transformer.config.decoder_start_token_id)
        before = labels[:, :-1].masked_fill(labels[:, :-1] == NO_TOKEN, self.transformer.config.pad_token_id)
        logits = self.transformer(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            decoder_input_ids=torch.cat([start, before], 1),
            use_cache=False,
        ).logits  # (batch, length, vocabulary)
        return functional.cross_entropy(
            single(logits).transpose(1, 2), labels, ignore_index=NO_TOKEN, reduction="none"
        ).sum(1)


@dataclass(frozen=True, kw_only=True)
class Asked(Sequences):
    """Passages, and the query that each is asked for: those of row i."""

    query: Callable[[int], npt.NDArray[np.int64]]

    def take(self, rows: npt.NDArray[np.integer]) -> Asked:
        """Choose some, in this order."""
        return replace(
            self,
            lengths=self.lengths[rows],
            frame=lambda row: self.frame(int(rows[row])),
            query=lambda row: self.query(int(rows[row])),
        )

    def batch(self, rows: npt.NDArray[np.integer]) -> dict[str, Tensor]:
        """Make and pad some."""
        queries = [self.query(int(row)) for row in rows]
        labels = np.full((len(rows), max(map(len, queries))), NO_TOKEN, np.int64)
        for own, query in zip(labels, queries, strict=True):
            own[: len(query)] = query
        return {**super().batch(rows), "labels": torch.from_numpy(labels)}


@dataclass(frozen=True)
class Passages:
    """Passages of a token cache, cut to `length` tokens, special ones included."""

    tokens: Tokens
    template: Template
    length: int

    def lengths(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.integer]:
        """Count the tokens of framed passages."""
        return np.clip(self.tokens.lengths[rows] + self.template.extra, 1, self.length)

    def sequences(self, rows: npt.NDArray[np.int64]) -> Sequences:
        """Frame the passages of some rows."""
        return Sequences(self.lengths(rows), lambda row: self.frame(int(rows[row])), self.template, self.source)

    def frame(self, row: int) -> Frame:
        """Frame the passage of a row."""
        return frame_text(self.tokens[row], self.template, self.length, 0)

    @property
    def source(self) -> str:
        """File of the passages."""
        return str(self.tokens.path)


def frame_query(tokens: Ids, end: int, length: int) -> npt.NDArray[np.int64]:
    """Cut a query to `length` tokens, its end included."""
    return np.append(tokens[: length - 1], end).astype(np.int64)


def load_expander(folder: str | Path, passage_length: int, query_length: int) -> tuple[Expander, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template.

    :param passage_length: tokens a passage is cut to, special ones included; `query_length` of a query, with its end.
    """
    transformer: Any = load_transformer(folder, SEQ2SEQ, trained=True)
    for name in NEEDED:
        if getattr(transformer.config, name, None) is None:
            found = f"no {name} in config.json"
            raise input_error(folder, found, "the token that its queries begin, end or are filled with", "set it there")
    template = load_template(folder, count_tokens(transformer))
    check_length("--passage-length", passage_length, template.extra + 1, transformer)
    check_length("--query-length", query_length, 2, transformer)
    return Expander(transformer).eval(), template
