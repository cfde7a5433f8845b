"""Likely false negatives: passages that the encoder before training scores about as high as the judged positive.

Such a passage is probably relevant but unjudged, not a mistake to be unlearned (Moreira et al., 2024, "NV-Retriever",
section 4; Solatorio, 2024, "GISTEmbed").
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cort.models.encoder import Encoder
from cort.models.light import Vectors
from cort.models.modules import Texts
from cort.runtime.progress import Counter
from cort.training.microbatches import Rows, meet

log = logging.getLogger(__name__)

# Limits on memory.
TEXTS_AT_ONCE, TRIPLES_REPORTED = 4_096, 10_000


@dataclass(frozen=True)
class ByRow:
    """Values (rows, ...) of some rows of a token cache, which are in ascending order."""

    rows: Rows
    values: npt.NDArray[Any]

    def of(self, rows: Rows) -> npt.NDArray[Any]:
        """Look up values; (..., ...) for rows of any shape."""
        values: npt.NDArray[Any] = self.values[np.searchsorted(self.rows, rows)]
        return values


@dataclass(frozen=True)
class Guide:
    """Vectors of all texts of some triples before training, and the relative margin below the positive's score."""

    margin: float
    queries: ByRow
    passages: ByRow

    def too_near(self, triples: Rows) -> npt.NDArray[np.bool_]:
        """Find passages that score above ``(1 - margin)`` times the positive's score, if that is not negative.

        :param triples: rows of queries, positives and k negatives, (2 + k, mini-batches, n).
        :returns: (mini-batches, n, (1 + k) n); the value for a query's own positive is meaningless.
        """
        queries, *passages = triples
        vectors = self.queries.of(queries), self.passages.of(np.concatenate(passages, axis=-1))
        scores = vectors[0] @ vectors[1].swapaxes(-1, -2)  # (mini-batches, n, (1 + k) n)
        own = np.diagonal(scores, axis1=-2, axis2=-1)[..., None]  # (mini-batches, n, 1)
        near: npt.NDArray[np.bool_] = scores > own - self.margin * np.abs(own)
        return near


def encode_start(encoder: Encoder, texts: Texts, rows: Rows, kind: str, precision: str) -> ByRow:
    """Encode rows with the encoder before training, shared among the processes, as the stage `encode` does.

    :param kind: of the texts, in the log.
    """
    from accelerate.utils import gather_object

    rows, processes = np.unique(rows), meet()
    device, size = processes.device, processes.num_processes
    # Weights in half precision would stay so.
    start = copy.deepcopy(encoder).eval()
    start.place(device, precision)
    parts, vectors = np.split(rows, range(TEXTS_AT_ONCE, len(rows), TEXTS_AT_ONCE)), list[Vectors]()
    with Counter(len(rows), f"{kind} encoded before training", shown=processes.is_main_process) as counter:
        for turn in (parts[first : first + size] for first in range(0, len(parts), size)):
            mine = turn[processes.process_index :][:1]
            vectors += gather_object([texts.vectors(start, part, device) for part in mine])
            counter.advance(sum(map(len, turn)))
    return ByRow(rows, np.concatenate(vectors))


def report_left_out(guide: Guide, triples: Rows) -> None:
    """Log which share of the hard negatives is left out, by the first triples."""
    some = triples[:, :TRIPLES_REPORTED, None]  # (2 + k, examples, 1)
    share = 100 * guide.too_near(some)[..., 1:].mean()
    log.log(
        logging.WARNING if share > 50 else logging.INFO, "left out as likely relevant: %.1f %% of hard negatives", share
    )
