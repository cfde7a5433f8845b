"""Score predicted queries with a re-ranker, each with its own passage, one shard of the blocks at a time (Doc2Query--).

The passages are cut into blocks of fixed size and a shard is a run of whole blocks, so the number of shards changes no
byte. With a folder of checkpoints, finished blocks are kept there until the shard is whole: a shard that was ended goes
on after its last one.

Reads a re-ranker folder, a token cache of the passages and predicted queries; writes doc_id and the scores of the
queries of each passage, as parquet.

Usage: python -m cort.score_expansions --model rerankers/cross/best --tokens passages.arrow --shard 1-of-4
              --expansions expansions.parquet --output passages.1-of-4.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks, ShardOptions, shard_blocks
from cort.formats.cleaning import Form, convert
from cort.formats.expansions import OTHERS
from cort.formats.tokens import Tokens
from cort.models.settings import Precision
from cort.models.tokenizer import Template, fingerprint, load_tokenizer, refusing
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from cort.models.rerankers import Reranker

log = logging.getLogger(__name__)

# Passages whose queries are sorted by length together. Part of the result, as padding changes the last bits: not a
# setting.
BLOCK = 256


@dataclass(frozen=True, kw_only=True)
class Options(ShardOptions):
    """Options of this stage."""

    model: str = required("FOLDER")
    tokens: str = required("ARROW", "token cache of the passages")
    expansions: tuple[str, ...] = required("PARQUET", "predicted queries, of all passages in their order")
    cleaning: Form = optional("raw", "what is done to the queries first")
    precision: Precision = optional("fp32")
    threads: int = thread_count()
    output: str = required("PARQUET")


@dataclass(frozen=True)
class Scorer:
    """What scores the queries of passages."""

    model: Reranker
    template: Template
    tokenizer: Tokenizer
    passages: Tokens
    device: torch.device
    counter: Counter
    options: Options

    def score(self, block: tuple[int, pa.Table]) -> pa.RecordBatch:
        """Score the queries of the passages from a row on.

        :raises InputError: queries of other passages; scores that are not finite.
        """
        start, table = block
        ids = self.passages.ids.slice(start, table.num_rows).combine_chunks()
        if not ids.equals(table["doc_id"].combine_chunks()):
            found = f"other passages than {self.options.tokens} from row {start + 1} on"
            raise input_error(self.options.expansions[0], found, *OTHERS)
        sizes = pc.list_value_length(table["queries"]).to_numpy()
        rows = np.repeat(np.arange(start, start + table.num_rows), sizes)
        scores = self._scores(pc.list_flatten(table["queries"].combine_chunks()), rows)
        if not np.isfinite(scores).all():
            doc_id = shorten(self.passages.ids[int(rows[~np.isfinite(scores)][0])].as_py())
            found = f"in {self.options.precision} a score of passage {doc_id} that is no finite number"
            raise input_error(self.options.model, found, "finite numbers", "use precision fp32 or another re-ranker")
        self.counter.advance(table.num_rows)
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
        queries = Tokens.of_texts([np.array(one.ids, np.int32) for one in encodings])
        pairs = self.model.pairs(queries, self.passages, self.template)
        with torch.inference_mode():
            scores = pairs.score(self.model, np.arange(len(rows)), rows, self.device)
        found: npt.NDArray[np.float32] = scores.float().cpu().numpy()
        return found


def iter_blocks(options: Options, blocks: list[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, pa.Table]]]:
    """Yield the number of each block, and (its first row, the predicted queries of its passages)."""
    files = chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions)
    sizes = {start // BLOCK: end - start for start, end in blocks}
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
    from cort.models.transformer import choose_device, identity, resume

    model, template = load_reranker(options.model)
    passages = Tokens(options.tokens, fingerprint(options.model))
    blocks = shard_blocks(len(passages), options.shard, BLOCK)
    written = 0
    with lease() as leased, tables.open_writer(options.output, tables.EXPANSION_SCORES) as writer:
        device = choose_device(options.threads, leased)
        decisive = {"cleaning": options.cleaning, "precision": options.precision, "device": device.type}
        read = [options.tokens, *options.expansions]
        finished = FinishedBlocks(
            options.checkpoints, partial(identity, "cort.score_expansions", decisive, read, options.model)
        )
        model.place(device, options.precision)
        with Counter(sum(end - start for start, end in blocks), "passages") as counter:
            resume(model, finished, device)
            # A block may take long: each batch shows that it goes on.
            model.register_forward_hook(lambda *_: counter.advance(0))
            scorer = Scorer(model, template, load_tokenizer(options.model), passages, device, counter, options)
            for batch in finished.each(iter_blocks(options, blocks), scorer.score, counter):
                writer.write_batch(batch)
                written += len(batch["scores"].values)
    finished.remove(start // BLOCK for start, _ in blocks)
    log.info("%d scores of predicted queries on %s in %s", written, device, options.precision)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
