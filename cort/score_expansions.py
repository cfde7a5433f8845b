"""Score predicted queries with a re-ranker, each against its own passage, one shard at a time (Doc2Query--).

`cort/models/shards.py` explains shards and checkpoints.

Reads a re-ranker folder, a token cache of the passages and predicted queries; writes doc_id and the scores of each
passage's queries as parquet.

Usage: python -m cort.score_expansions --model rerankers/cross/best --tokens passages.arrow --shard 1-of-4
              --expansions expansions.parquet --output passages.1-of-4.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.cleaning import Form, convert
from cort.formats.expansions import OTHERS
from cort.formats.tokens import Tokens
from cort.models.shards import PassageOptions, Ranges, Run, write_shard
from cort.models.tokenizer import Template, fingerprint, load_tokenizer, refusing
from cort.settings.models import BaseModel
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from cort.models.rerankers import Reranker

log = logging.getLogger(__name__)

# Passages whose queries are sorted by length together. Not a setting: padding changes the last bits of the result.
BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class Options(PassageOptions):
    """Options of this stage."""

    expansions: tuple[str, ...] = required("PARQUET", "predicted queries of all passages, in their order")
    cleaning: Form = optional(BaseModel.cleaning, "how the queries are cleaned first")


@dataclass(frozen=True)
class Scorer:
    """Scores the queries of passages."""

    model: Reranker
    template: Template
    tokenizer: Tokenizer
    passages: Tokens
    run: Run
    options: Options

    def score(self, block: tuple[int, pa.Table]) -> pa.RecordBatch:
        """Score the queries of the passages that begin at a row.

        :raises InputError: for queries of other passages, and for NaN or infinite scores.
        """
        start, table = block
        ids = self.passages.ids.slice(start, table.num_rows).combine_chunks()
        if not ids.equals(table["doc_id"].combine_chunks()):
            found = f"other passages than in {self.options.tokens} after row {start}"
            raise input_error(self.options.expansions[0], found, *OTHERS)
        sizes = pc.list_value_length(table["queries"]).to_numpy()
        rows = np.repeat(np.arange(start, start + table.num_rows), sizes)
        scores = self._scores(pc.list_flatten(table["queries"].combine_chunks()), rows)
        if not np.isfinite(scores).all():
            doc_id = shorten(self.passages.ids[int(rows[~np.isfinite(scores)][0])].as_py())
            found = f"in {self.options.precision} a NaN or infinite score of passage {doc_id}"
            raise input_error(self.options.model, found, "finite numbers", "use precision fp32 or another re-ranker")
        self.run.counter.advance(table.num_rows)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
        lists = pa.ListArray.from_arrays(offsets, pa.array(scores))
        return pa.record_batch([ids, lists], schema=tables.EXPANSION_SCORES)

    def _scores(self, texts: pa.Array, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Score each text with the passage in its row, (texts,)."""
        import torch

        if not len(rows):
            return np.empty(0, np.float32)
        with refusing(self.options.model):
            converted = convert(texts, self.options.cleaning).to_pylist()
            encodings = self.tokenizer.encode_batch_fast(converted, add_special_tokens=False)
        queries = Tokens.of_texts([np.array(encoding.ids, np.int32) for encoding in encodings])
        pairs = self.model.pairs(queries, self.passages, self.template)
        with torch.inference_mode():
            scores: npt.NDArray[np.float32] = (
                pairs.score(self.model, np.arange(len(rows)), rows, self.run.device).float().cpu().numpy()
            )
        return scores


def iter_blocks(options: Options, ranges: Ranges) -> Iterator[tuple[int, tuple[int, pa.Table]]]:
    """Yield (number, (first row, predicted queries)) of each block."""
    files = chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions)
    sizes = {start // BLOCK: end - start for start, end in ranges}
    for number, table in enumerate(tables.regroup(files, BLOCK)):
        if (size := sizes.pop(number, None)) is not None:
            if table.num_rows != size:
                found = f"{number * BLOCK + table.num_rows} rows for {number * BLOCK + size} passages"
                raise input_error(options.expansions[-1], found, *OTHERS)
            yield number, (number * BLOCK, table)
        if not sizes:
            return
    raise input_error(options.expansions[-1], "too few rows", *OTHERS)


def stage(options: Options) -> None:
    """Score and write."""
    from cort.models.rerankers import load_reranker
    from cort.models.transformer import resume

    model, template = load_reranker(options.model)
    passages = Tokens(options.tokens, fingerprint(options.model))

    def prepare(run: Run) -> Callable[[tuple[int, pa.Table]], pa.RecordBatch]:
        model.place(run.device, options.precision)
        resume(model, run.finished, run.device)
        # A block may take long; each batch shows that work continues.
        model.register_forward_hook(lambda *_: run.counter.advance(0))
        return Scorer(model, template, load_tokenizer(options.model), passages, run, options).score

    done = write_shard(
        "cort.score_expansions",
        options,
        tables.EXPANSION_SCORES,
        len(passages),
        BLOCK,
        prepare,
        decisive=("cleaning", "precision"),
        files=options.expansions,
        read=partial(iter_blocks, options),
    )
    log.info("scores of predicted queries: %s", done)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
