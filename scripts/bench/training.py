"""Compare the stage `train`, which encodes many mini-batches at once, with single mini-batches.

The plain variant is the same stage with mini-batches of 6 triples, each padded to its longest texts. Speeds are the
stage's own, without the first update. The model is a pretrained folder, or has MiniLM's size and random weights. Uses a
GPU, if there is one.

Usage: python -m scripts.bench.training --data ../shared/data/squad [--base-model FOLDER] [--tokens-at-once 1024 8192]
"""

import csv
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import torch

from cort.formats import tables
from scripts.bench import common

PLAIN = """
import sys
from cort import train
from cort.training import microbatches
together = microbatches.forward_by_length
microbatches.forward_by_length = lambda model, texts, device, _: together(model, texts, device, sys.maxsize)
sys.exit(train.main(sys.argv[1:]))
"""
MINI_BATCH, UPDATES = 6, 3
SMALL = {"batch_size": MINI_BATCH, "learning_rate": 1e-7, "warmup_updates": 0}
Shape = Mapping[str, str | int]
MINILM: Shape = {"model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}


def draw_triples(data: Path, folder: Path, base_model: Path | None = None, shape: Shape = MINILM) -> pa.Table:
    """Tokenize, and draw a triple per judgement; without a base model, make one of this shape and random weights."""
    passages = folder / "passages.parquet"
    common.run_stage("collection", passages=data / "collection.tsv", output=passages)
    texts = {kind: data / f"{kind}.train.tsv" for kind in ("queries", "qrels")}
    outputs = {f"output_{kind}": folder / f"{kind}.parquet" for kind in texts}
    common.run_stage("split", **texts, passages=passages, unjudged_queries="drop", **outputs)
    new = {"architecture": json.dumps(shape), "vocabulary_size": 30_522, "passages": passages}
    common.run_stage("base_model", **({"pretrained": base_model} if base_model else new), output=folder / "lm")
    for name in ("passages", "queries"):
        files = {"texts": folder / f"{name}.parquet", "output": folder / f"{name}.arrow"}
        common.run_stage("tokenize", tokenizer=folder / "lm", **files)
    qrels = tables.read_table(folder / "qrels.parquet", tables.QRELS)
    doc_ids = tables.read_table(passages, tables.PASSAGES)["doc_id"]
    generator = np.random.default_rng(1)
    drawn = qrels.take(pa.array(generator.permutation(len(qrels))))
    negatives = doc_ids.take(pa.array(generator.integers(len(doc_ids), size=len(drawn))))
    zeros, ones = (pa.repeat(pa.scalar(value, pa.int32()), len(drawn)) for value in (0, 1))
    return pa.table([zeros, drawn["query_id"], drawn["doc_id"], negatives, ones], schema=tables.TRIPLES)


def pairs_of(triples: pa.Table) -> pa.Table:
    """Make two pairs of each triple, one after the other."""
    count = len(triples)
    rows, both = np.repeat(np.arange(count), 2), np.arange(2 * count).reshape(2, count).T.reshape(-1)
    doc_ids = pa.chunked_array([*triples["positive"].chunks, *triples["negative"].chunks]).take(both)
    labels = pa.array(np.tile(np.array([1, 0], np.int32), count))
    return pa.table([triples["epoch"].take(rows), triples["query_id"].take(rows), doc_ids, labels], tables.PAIRS)


def train(
    folder: Path,
    examples: pa.Table,
    program: Sequence[str],
    options: Mapping[str, object],
    kind: Literal["triples", "pairs"] = "triples",
) -> float:
    """Train on triples, or a re-ranker on pairs; return how many per second, without the first update."""
    tables.write_table(folder / "part", examples)
    tables.write_table(folder / "validation", examples.slice(0, MINI_BATCH))
    files = {kind: "part", f"validation_{kind}": "validation", "passages": "passages.arrow", "base_model": "lm"}
    files |= {"queries": "queries.arrow", "validation_queries": "queries.arrow", "output": "model"}
    files |= {"output_curve": "curve.csv", "output_selection": "selection.json"}
    paths = {name: folder / file for name, file in files.items()}
    common.run(sys.executable, *program, *common.words({**paths, **SMALL, **options}))
    with open(folder / "curve.csv", encoding="utf-8", newline="") as lines:
        speeds = {int(row["step"]): row["examples_per_second"] for row in csv.DictReader(lines)}
    return statistics.median(float(speed) for step, speed in speeds.items() if step > 1 and speed)


def main() -> None:
    """Prepare, measure, print."""
    sizes = {"gradient_accumulation": 16, "tokens_at_once": [1_024, 8_192], "length": 256}
    args = common.parse(__doc__, data=Path, base_model=None, rounds=5, precisions=["fp32", "bf16"], **sizes)
    shape = {"gradient_accumulation": args.gradient_accumulation, "threads": torch.get_num_threads()}
    shape |= {"query_length": args.length, "passage_length": args.length, "dimension": 128, "pooling": "mean"}
    programs = {"plain": (("-c", PLAIN), 1)}
    programs |= {f"{n} tokens at once": (("-m", "cort.train"), n) for n in args.tokens_at_once}
    size = UPDATES * MINI_BATCH * args.gradient_accumulation
    with tempfile.TemporaryDirectory() as name:
        triples, sides = draw_triples(args.data.resolve(), Path(name), args.base_model).slice(0, size), {}
        for precision in args.precisions:
            for variant, (program, tokens) in programs.items():
                options = {**shape, "precision": precision, "tokens_at_once": tokens}
                sides[f"{precision}, {variant}"] = partial(train, Path(name), triples, program, options)
        speeds = common.in_turns(args.rounds, sides)
    rows, first = [], next(iter(speeds))
    for variant, measured in speeds.items():
        same, single = (common.ratios(measured, speeds[name]) for name in (f"{variant.split(',')[0]}, plain", first))
        rows.append((variant, f"{statistics.median(measured):.1f}", same, single))
    common.print_table(["variant", "triples/s", "to plain, same precision", f"to {first}"], rows)


if __name__ == "__main__":
    main()
