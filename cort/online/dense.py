"""Queries to vectors, and vectors to the passages nearest to them, by exact search."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import torch

from cort import retrieve
from cort.batching import Frame, Sequences, frame_text
from cort.encode import TOKEN_BUDGET
from cort.encoder import load_encoder
from cort.formats.embeddings import STORAGE, Shard, all_ids
from cort.models import forward_by_length, inference, model_fingerprint
from cort.online.tokens import TokenIds, Tokenizer
from cort.records import Ranking

Vectors = npt.NDArray[np.float32]


class QueryEncoder:
    """An encoder and its tokenizer, for texts of queries; the vectors are those of the stage `encode`.

    They differ in their last bits, as padding does: texts meet others of other lengths there.
    """

    def __init__(self, folder: Path, form: str, precision: str, device: torch.device) -> None:
        """Load the model folder.

        :param form: form of the texts (`cort.text`).
        :param precision: of the transformer's products.
        """
        self.fingerprint = model_fingerprint(folder)
        self.device = device
        self._model, self._template = load_encoder(folder)
        self._model.to(device)
        self._settings = self._model.settings
        self._tokenizer = Tokenizer(folder, form)
        self._precision = precision

    def tokenize(self, texts: Sequence[str]) -> list[TokenIds]:
        """Token ids of each text, without special tokens."""
        return self._tokenizer(texts)

    def encode(self, tokens: Sequence[TokenIds], storage: str) -> Vectors:
        """Vectors of shape (texts, e), rounded as they are stored.

        :param storage: number format of the passages' vectors, "fp32" or "fp16".
        """
        longest, segment = self._settings.length("query"), self._settings.segment("query")

        def frame(row: int) -> Frame:
            return frame_text(tokens[row], self._template, longest, segment)

        lengths = np.minimum([len(ids) + self._template.extra for ids in tokens], longest)
        sequences = Sequences(lengths, frame, self._template.pad)
        with inference(self.device, self._precision):
            vectors = forward_by_length(self._model, sequences, self.device, TOKEN_BUDGET).float()  # (texts, e)
        if self._settings.unit_length:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        stored = vectors.cpu().numpy().astype(STORAGE[storage].to_pandas_dtype())
        return np.asarray(stored, dtype=np.float32)


class ExactIndex:
    """All vectors of the passages in memory, and on the devices that multiply them."""

    def __init__(self, shards: Sequence[Shard], devices: Sequence[str]) -> None:
        """Read the vectors and share their blocks out evenly.

        :param devices: torch's names; they work side by side.
        """
        self.storage = shards[0].storage
        self.dimension = shards[0].dimension
        ids = all_ids(shards).combine_chunks()
        by_id = pc.sort_indices(ids).to_numpy()
        self._sorted_ids = ids.take(pa.array(by_id))
        places = np.empty(len(ids), dtype=np.int64)
        places[by_id] = np.arange(len(ids))
        self._places = torch.from_numpy(places)
        rows = max(1, min(retrieve.NUMBERS_PER_BLOCK // self.dimension, -(-len(ids) // len(devices))))
        self._blocks = [vectors for _, vectors in retrieve._joined(shards, rows)]
        self._rows = rows
        self.place(devices)

    def place(self, devices: Sequence[str]) -> None:
        """Move the blocks to other devices."""
        self.devices = list(devices)
        parts: list[list[_Block]] = [[] for _ in devices]
        for number, vectors in enumerate(self._blocks):
            device = devices[number % len(devices)]
            at = number * self._rows
            matrix = retrieve.Matrix(vectors, torch.from_numpy(vectors).to(device))
            parts[number % len(devices)].append((matrix, self._places[at : at + len(vectors)].to(device)))
        self._parts = [part for part in parts if part]
        self._pool = ThreadPoolExecutor(len(self._parts), "exact") if len(self._parts) > 1 else None

    def search(self, vectors: Vectors, depth: int) -> list[Ranking]:
        """Rank all passages for each vector; the results are those of the stage `retrieve`."""
        torch.set_float32_matmul_precision("highest")
        each = [(vectors, part, depth) for part in self._parts]
        found = [_best(*each[0])] if self._pool is None else list(self._pool.map(lambda one: _best(*one), each))
        keys = torch.cat(found, dim=1)
        keys = keys.topk(min(depth, keys.shape[1]), dim=1).values
        scores, positions = retrieve._decode(keys)
        return [
            Ranking("", self._sorted_ids.take(pa.array(row)).to_pylist(), values)
            for row, values in zip(positions, scores, strict=True)
        ]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


_Block = tuple[retrieve.Matrix, torch.Tensor]


def _best(vectors: Vectors, blocks: Sequence[_Block], depth: int) -> torch.Tensor:
    """Keys of the best results of some blocks of one device; all there is to know of how `retrieve` searches."""
    device = blocks[0][1].device
    queries = retrieve.Matrix(vectors, torch.from_numpy(vectors).to(device))
    norms = retrieve._norms(queries.device)
    best: Any = torch.full((len(vectors), 0), retrieve.NOTHING, device=device)
    for block, places in blocks:
        best = retrieve._merge(best, queries, block, places, retrieve._margins(norms, block.device), depth)
    found: torch.Tensor = best.cpu()
    return found
