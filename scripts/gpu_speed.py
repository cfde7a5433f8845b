"""Measure speeds on a GPU beside bounds of the same run: a table, and JSON.

The stages `train`, `train_reranker`, `encode` and `score` run as programs, as in a build. What their start takes is
left out: that of the first update, or of a run on a few texts. Models have BERT's or ALBERT's shape and random weights,
texts MS MARCO's lengths. Bounds: large products in the same precision, and copies of memory. Arithmetic is counted
without padding, three times in training.

Usage: python -m scripts.gpu_speed [--output gpu-speed.json]
       python -m scripts.gpu_speed --device cpu     tries it without a GPU, in small sizes
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from cort.formats import tables
from cort.formats.shards import Tokens, write_shard
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import new_encoder
from cort.models.settings import EncoderSettings, PairSettings
from cort.models.transformer import name_of
from cort.retrieval.exact import ExactIndex
from cort.retrieval.vectors import open_vectors
from scripts.bench import common, training
from scripts.full_size import generate

BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
# Share of MS MARCO, triples and texts, mini-batches per update, vectors, width of products, shape of models.
SIZES = {"cuda": (2**-7, 3_600, 100, 8_841_823, 8_192, BASE), "cpu": (2**-13, 78, 2, 20_000, 256, SMALL)}
REPBERT = {"batch_size": 13, "gradient_accumulation": 2, "loss": "multilabel_margin", "pooling": "mean"}
REPBERT |= {"projection": False, "similarity": "inner_product"}
DIMENSION, DEPTH = 128, 1_000
# Texts or triples of a run that is nearly all start, and runs of each size, whose median counts.
FEW, RUNS = 6, 3


def median_of(work: Callable[..., object], *arguments: object) -> float:
    """Median time of five calls in seconds, after a warm-up."""

    def finish() -> None:
        work(*arguments)
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return statistics.median([common.seconds_of(finish) for _ in range(6)][1:])


def operations_of(config: Any, counts: npt.NDArray[np.integer]) -> float:
    """Count the operations of a forward pass: 2 per weight and token, and 4 h per layer and pair of a text's tokens."""
    hidden, tokens = config.hidden_size, counts.astype(float)
    weights = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    return float(config.num_hidden_layers * (2 * weights * tokens.sum() + 4 * hidden * (tokens**2).sum()))


def beyond_start(stage: str, few: Mapping[str, object], all_of: Mapping[str, object]) -> float:
    """Run a stage as a program on a few inputs and on all; return how many seconds longer the latter takes."""
    command = (sys.executable, "-m", *f"cort.{stage}".split())
    sides = {str(place): partial(common.run, *command, *common.words(how)) for place, how in enumerate((few, all_of))}
    start, whole = (
        statistics.median(cost.seconds for cost in costs) for costs in common.in_turns(RUNS, sides).values()
    )
    # On a busy machine without a GPU, there may be no difference.
    return max(whole - start, 1e-3)


def models(where: torch.device, folder: Path, peaks: Mapping[str, float]) -> Iterator[tuple[str, float, str, float]]:
    """Yield what models do, its speed, the unit, and the share of the peak of products."""
    scale, count, accumulation, _, _, shape = SIZES[where.type]
    generate(folder, scale)
    usual = {"gradient_accumulation": accumulation, "pooling": "cls", "dimension": shape["hidden_size"]}
    for name in ("bert", "albert"):
        place = folder / name
        place.mkdir()
        triples = training.draw_triples(folder, place, shape={"model_type": name, **shape}).slice(0, count)
        queries, passages = (Tokens(place / f"{some}.arrow") for some in ("queries", "passages"))
        rows = [queries.rows_of(triples["query_id"], place)]
        rows += [passages.rows_of(triples[column], place) for column in ("positive", "negative")]
        encoder = new_encoder(place / "lm", EncoderSettings(), 1)
        operations = partial(operations_of, encoder.transformer.config)
        texts = encoder.texts(passages, "passage")
        of_triples = operations(encoder.texts(queries, "query").lengths(rows[0]))
        of_triples += operations(texts.lengths(np.concatenate(rows[1:])))
        pairs = training.pairs_of(triples)
        scored = new_cross_encoder(place / "lm", PairSettings(), 1).pairs(queries, passages)
        places = queries.rows_of(pairs["query_id"], place), passages.rows_of(pairs["doc_id"], place)
        of_pairs = operations(scored.lengths(*places))
        cut(place / "passages.arrow", place / "few.arrow")
        for size, rows_of in (("few", triples.slice(0, FEW)), ("all", triples)):
            tables.write_table(place / f"{size}.parquet", rows_of)
        for precision, peak in peaks.items():
            repbert = usual | REPBERT | dict.fromkeys(("qrels", "validation_qrels"), place / "qrels.parquet")
            for kind, options in ((" in RepBERT's batches", repbert), ("", usual)):
                how = {**options, "precision": precision}
                speed = training.train(place, triples, ("-m", "cort.train"), how)
                yield f"train {name}{kind}, {precision}", speed, "triples/s", 3 * of_triples / count * speed / peak
            made = {"model": place / "model" / "last", "precision": precision}
            how = {**made, "kind": "passage", "output": place / "vectors.arrow"}
            few, every = ({**how, "tokens": place / f"{size}.arrow"} for size in ("few", "passages"))
            seconds, counted = beyond_start("encode vectors", few, every), np.arange(FEW, len(passages))
            share = operations(texts.lengths(counted)) / seconds / peak
            yield f"encode {name}, {precision}", len(counted) / seconds, "passages/s", share
            settings = {"precision": precision, "gradient_accumulation": accumulation}
            speed = training.train(place, pairs, ("-m", "cort.train_reranker"), settings, "pairs")
            share = 3 * of_pairs / len(pairs) * speed / peak
            yield f"train {name} as a cross-encoder, {precision}", speed, "pairs/s", share
            how = {**made, "queries": place / "queries.arrow", "passages": place / "passages.arrow"}
            how["output"] = place / "scores.parquet"
            few, every = ({**how, "triples": place / f"{size}.parquet"} for size in ("few", "all"))
            seconds, done = beyond_start("score", few, every), 1 - FEW / count
            share = done * of_pairs / seconds / peak
            yield f"score {name}, {precision}", done * len(pairs) / seconds, "pairs/s", share


def cut(tokens: Path, output: Path) -> None:
    """Copy the first texts of a token cache."""
    table = tables.open_arrow(tokens, "token cache", "tokenize again")
    tables.write_arrow(output, table.slice(0, FEW))


def measure(device: str, folder: Path) -> Iterator[tuple[str, float, str, float]]:
    """Yield the same of the bounds, of search, which must read random vectors and multiply, and of models."""
    _, _, _, count, width, _ = SIZES[device]
    peaks = {}
    for precision, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        left, right = torch.randn(2, width, width, device=device).to(kind)
        peaks[precision] = 2 * width**3 / median_of(torch.mm, left, right)
        yield f"product, {precision}", peaks[precision] / 1e12, "TFLOP/s", 1.0
    unit = torch.nn.functional.normalize(torch.randn(count + 256, DIMENSION, device=device))
    bandwidth = 2 * unit.nbytes / median_of(torch.clone, unit)
    yield "copy", bandwidth / 1e9, "GB/s", 1.0
    vectors, queries = np.split(unit.cpu().numpy(), [count])
    ids = list(map(str, range(count)))
    write_shard(folder / "vectors", [(ids, vectors)], model="", dimension=DIMENSION, count=count)
    index = ExactIndex(open_vectors([folder / "vectors"]), [device], os.cpu_count() or 1, 5 * vectors.nbytes >> 20)
    for batch in (1, 256):
        seconds = median_of(index.search, queries[:batch], DEPTH)
        bound = max(vectors.nbytes / bandwidth, 2 * batch * vectors.size / peaks["fp32"])
        yield f"search, {batch} at once", batch / seconds, "queries/s", bound / seconds
    yield from models(torch.device(device), folder, peaks)


def main() -> None:
    """Measure, print, write."""
    args = common.parse(__doc__, device="cuda", output=Path("gpu-speed.json"))
    if args.device == "cpu":
        os.environ |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as folder:
        rows = list(measure(args.device, Path(folder)))
    machine, date = name_of(torch.device(args.device)), time.strftime("%Y-%m-%d")
    cells = [(what, f"{speed:.4g} {unit}", f"{share:.2f}") for what, speed, unit, share in rows]
    common.print_table([f"{machine}, torch {torch.__version__}, {date}", "speed", "share of the bound"], cells)
    found = {"machine": machine, "torch": torch.__version__, "date": date, "rows": rows}
    args.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
