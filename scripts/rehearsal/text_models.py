"""The steps of models that change the texts of an index: small ones that weigh terms or write queries, on a part."""

from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

from cort.formats import tables
from scripts.rehearsal import common
from scripts.rehearsal.common import Step, first_shard, training_outputs
from scripts.rehearsal.drawn import write_first

# Queries of a passage, and tokens of a query: 40 and up to 64 would take hours without a GPU.
WRITTEN, LENGTH = 2, 8


def text_steps(folder: Path, passages: int, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    """Train models on a few examples, and have them work on a part of the passages."""
    yield from _weigher(folder, passages, size, model, threads)
    yield from _expander(folder, passages, model.with_name("t5"), threads)


def _weigher(folder: Path, passages: int, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    recall, few, trained = folder / "term_recall.parquet", folder / "few.term_recall.parquet", folder / "weigher"
    files = {kind: folder / f"{kind}.train.parquet" for kind in ("qrels", "queries")}
    count, table, tokens = round(502_939 * size), folder / "passages.parquet", folder / "passages.tokens.arrow"
    yield Step("term_recall", count, "queries", **files, passages=table, output=recall)
    note, write = (
        f"a small model, {common.EXAMPLES} passages at every size",
        partial(write_first, few, recall, tables.TERM_RECALL),
    )
    files = {"base_model": model, "targets": few, "validation_targets": few, "passages": tokens}
    yield Step(
        "train_weigher", common.EXAMPLES, "passages", note, write, **files, **training_outputs(trained), threads=threads
    )
    options = {"model": trained / "last", "tokens": tokens, "threads": threads}
    yield first_shard("weigh", passages, common.ENCODED, **options, output=folder / "weighed.parquet")


def _expander(folder: Path, passages: int, model: Path, threads: int) -> Iterator[Step]:
    few, trained, tokens = folder / "few.qrels.parquet", folder / "expander", folder / "passages.tokens.arrow"
    pairs = {"qrels": few, "queries": folder / "queries.train.tokens.arrow"}
    files = {
        "base_model": model,
        "passages": tokens,
        **pairs,
        **{f"validation_{name}": file for name, file in pairs.items()},
    }
    lengths = {"passage_length": 128, "query_length": LENGTH, "threads": threads}
    note, write = (
        f"a small T5, {common.EXAMPLES} queries at every size",
        partial(write_first, few, folder / "qrels.train.parquet", tables.QRELS),
    )
    options = {**lengths, "batch_size": 24, **training_outputs(trained)}
    yield Step("train_expander", common.EXAMPLES, "queries", note, write, **files, **options)
    options = {"model": trained / "last", "tokens": tokens, "queries": WRITTEN, **lengths}
    note = f", {WRITTEN} queries of at most {LENGTH} tokens each"
    yield first_shard("expand", passages, common.EXPANDED, note, **options, output=folder / "expanded.parquet")
