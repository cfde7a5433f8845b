"""Score query-passage pairs with the re-ranker, each pair once however many systems and depths need it.

Reads a re-ranker folder, token caches and one or more candidate runs; writes scores.parquet, from which `rerank` makes
runs of any depth. Or reads triples, whose scores an encoder is to learn from. With a folder of checkpoints, finished
blocks are kept there until all pairs are scored: what was ended goes on after the last one.

Usage: python -m cort.score --model rerankers/small/best --candidates bm25.trec cort+bm25.trec --depth 1000
              --queries queries.test.arrow --passages passages.arrow --output scores.parquet
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks
from cort.formats.runs import Run, read_run
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.progress import track

if TYPE_CHECKING:
    import torch

    from cort.models.cross_encoder import CrossEncoder, Pairs

log = logging.getLogger(__name__)

# Pairs sorted by length together, and padded tokens that go through the transformer at once (see `encode`). Part of the
# result, as padding changes the last bits: not settings.
BLOCK = 8_192
TOKEN_BUDGETS = {"cpu": 1_024, "cuda": 16_384}
SIDES = ("positive", "negative")


def distinct_pairs(runs: Iterable[Run], depth: int) -> pa.Table:
    """Collect the pairs within `depth` of any run, each once, by query and document id."""
    parts = []
    for run in runs:
        kept = np.flatnonzero(run.ranks() <= depth)
        queries = pa.array(run.query_ids, pa.string()).take(pa.array(run.query_numbers()[kept]))
        parts.append(pa.table({"query_id": queries, "doc_id": run.doc_ids.take(pa.array(kept))}))
    return _each_once(pa.concat_tables(parts))


def pairs_of_triples(triples: pa.Table) -> pa.Table:
    """Collect the pairs of a query and its positive or negative, each once, by query and document id."""
    parts = [triples.select(["query_id", name]).rename_columns(["query_id", "doc_id"]) for name in SIDES]
    return _each_once(pa.concat_tables(parts))


def _each_once(pairs: pa.Table) -> pa.Table:
    pairs = pairs.group_by(["query_id", "doc_id"], use_threads=False).aggregate([])
    return pairs.sort_by([("query_id", "ascending"), ("doc_id", "ascending")])


def score_blocks(
    model: CrossEncoder,
    pairs: Pairs,
    table: pa.Table,
    source: str,
    device: torch.device,
    precision: str,
    finished: FinishedBlocks,
) -> Iterator[pa.RecordBatch]:
    """Yield the scored pairs block by block.

    :param precision: of the model, for messages.
    :raises InputError: unknown ids, for which `source` is to blame; scores that are not finite.
    """
    import torch

    queries = pairs.queries.rows_of(table["query_id"], source)
    passages = pairs.passages.rows_of(table["doc_id"], source)

    def score_block(start: int) -> pa.RecordBatch:
        part = slice(start, start + BLOCK)
        with torch.inference_mode():
            budget = TOKEN_BUDGETS[device.type]
            scores = pairs.score(model, queries[part], passages[part], device, budget).float().cpu()  # (block,)
        rows = table.slice(start, BLOCK)
        if not bool(scores.isfinite().all()):
            row = int((~scores.isfinite()).nonzero()[0])
            query_id, doc_id = (shorten(rows[name][row].as_py()) for name in ("query_id", "doc_id"))
            found = f"in {precision} the score {float(scores[row])} of query {query_id} and document {doc_id}"
            raise input_error(source, found, "a finite number", "use precision fp32 or train the re-ranker again")
        return rows.append_column("score", pa.array(scores.numpy())).combine_chunks().to_batches()[0]

    starts = range(0, len(queries), BLOCK)
    numbered = ((start // BLOCK, start) for start in starts)
    yield from track(finished.each(numbered, score_block), len(starts), f"blocks of {BLOCK} pairs")


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.score", __doc__)
    parser.add_argument("--model", required=True, metavar="FOLDER")
    pairs = parser.add_mutually_exclusive_group(required=True)
    pairs.add_argument("--candidates", nargs="+", metavar="TREC")
    pairs.add_argument("--triples", metavar="PARQUET", help="to train an encoder with")
    parser.add_argument("--depth", type=int, default=1000, help="candidates per query and run")
    parser.add_argument("--queries", required=True, metavar="ARROW", help="token cache")
    parser.add_argument("--passages", required=True, metavar="ARROW", help="token cache")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--checkpoints", metavar="FOLDER", help="keep finished blocks here until all pairs are scored")
    parser.add_argument("--output", required=True, metavar="PARQUET")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Score and write."""
    from cort.models.cache_key import identity
    from cort.models.cross_encoder import Pairs, load_cross_encoder
    from cort.models.transformer import choose_device

    model, template = load_cross_encoder(args.model)
    tokenizer = fingerprint(args.model)
    pairs = Pairs(Tokens(args.queries, tokenizer), Tokens(args.passages, tokenizer), template, model.settings)
    if args.triples:
        table, source = pairs_of_triples(tables.read_table(args.triples, tables.TRIPLES)), args.triples
        log.info("%d different pairs of triples", table.num_rows)
    else:
        table = distinct_pairs((read_run(path) for path in args.candidates), args.depth)
        log.info("%d different pairs of %d runs at depth %d", table.num_rows, len(args.candidates), args.depth)
        source = ", ".join(args.candidates)
    with lease() as leased, tables.open_writer(args.output, tables.SCORES) as writer:
        device = choose_device(args.threads, leased)
        options = {"precision": args.precision, "device": device.type, "depth": args.depth}
        files = [args.triples] if args.triples else sorted(args.candidates)
        identify = partial(identity, "cort.score", options, [*files, args.queries, args.passages], args.model)
        finished = FinishedBlocks(args.checkpoints, identify)
        placed = model.place(device, args.precision)
        for block in score_blocks(placed, pairs, table, source, device, args.precision, finished):
            writer.write_batch(block)
    finished.remove(range(-(-table.num_rows // BLOCK)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
