"""The model of doc2query (Nogueira et al., 2019): an encoder-decoder that says which queries a passage answers.

On disk a transformers folder of a T5 or another encoder-decoder, with its tokenizer.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Sequences, frame_text
from cort.models.loading import SEQ2SEQ, load_transformer
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import check_length, count_tokens
from cort.system.errors import input_error

# What says how a query begins, ends, and is filled up.
NEEDED = ("decoder_start_token_id", "eos_token_id", "pad_token_id")


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


def load_expander(folder: str | Path, passage_length: int, query_length: int) -> tuple[Any, Template]:
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
    return transformer.eval(), template
