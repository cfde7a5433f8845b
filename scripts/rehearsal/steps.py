"""The steps of a rehearsal: which stage works on what, at one size."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from scripts.rehearsal import common
from scripts.rehearsal.common import Step
from scripts.rehearsal.dense import neural_steps, vector_steps
from scripts.rehearsal.late import late_steps
from scripts.rehearsal.lexical import lexical_steps
from scripts.rehearsal.runs import run_steps
from scripts.rehearsal.synthetic import PASSAGES
from scripts.rehearsal.text_models import text_steps


def steps(folder: Path, size: Fraction, model: Path, threads: int) -> Iterator[Step]:
    """All steps of one size, in order; `model` is a base model made before."""
    passages = max(round(PASSAGES * size), 1_000)
    raw, table = folder / "raw", folder / "passages.parquet"
    yield Step("collection", passages, "passages", passages=raw / "collection.tsv", output=table)
    held_out = {"without": folder / "queries.dev.small.parquet", "sample": max(round(1_000 * size), 1), "seed": 42}
    for name, count in (("train", common.TRAIN_QUERIES), ("dev.small", common.DEV_QUERIES), ("validation", 101_093)):
        source, more = ("dev", held_out) if name == "validation" else (name, {})
        files = {kind: raw / f"{kind}.{source}.tsv" for kind in ("queries", "qrels")}
        outputs = {f"output_{kind}": folder / f"{kind}.{name}.parquet" for kind in files}
        yield Step(f"split {name}", round(count * size), "queries", **files, passages=table, **outputs, **more)
    for name, count in (("passages", passages), ("queries.train", round(common.TRAIN_QUERIES * size))):
        texts, output = folder / f"{name}.parquet", folder / f"{name}.tokens.arrow"
        yield Step(f"tokenize {name}", count, "texts", tokenizer=model, texts=texts, threads=threads, output=output)
    yield from lexical_steps(folder, passages, threads)
    yield from neural_steps(folder, passages, size, model, threads)
    yield from vector_steps(folder, passages, threads)
    yield from text_steps(folder, passages, size, model, threads)
    yield from late_steps(folder, passages, model, threads)
    yield from run_steps(folder, passages, size)
