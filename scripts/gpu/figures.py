"""How fast a GPU works beside what it could do: encoding, training and exact search at the size of MS MARCO.

Both bounds are measured, not read off a data sheet: large products in bf16 of random numbers, and a copy of memory.
Arithmetic is counted without padding, so that padding lowers the share.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort import encode
from cort.formats.embeddings import Shard
from cort.formats.tokens import Tokens
from cort.models.batching import Sequences
from cort.models.encoder import Encoder, Texts, new_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import load_template
from cort.models.transformer import TOKEN_BUDGETS, forward_by_length
from cort.retrieval.exact import ExactIndex
from cort.training.loop import Task, fit
from cort.training.run import make_deterministic
from cort.training.selection import Validation
from cort.training.settings import ObjectiveSettings, TrainingSettings
from cort.training.triples import TripleTexts, make_objective
from scripts.gpu.results import Found, at_least
from scripts.gpu.searches import Vectors, in_memory
from scripts.gpu.world import PASSAGE, QUERY, World, lengths, make_model, make_tokens, working_on

Figure = Callable[[World], Found]
GOAL_ENCODE, GOAL_TRAIN, GOAL_SEARCH, GOAL_TRIPLES = 0.5, 0.4, 1.5, 10.0
LENGTHS = {"query_length": 32, "passage_length": 180}
MINI_BATCH, DEPTH = 6, 1_000


def synchronize(device: str) -> None:
    """Wait until a device is done."""
    if device != "cpu":
        torch.cuda.synchronize()


def seconds(work: Callable[[], object], device: str, rounds: int) -> float:
    """Time of one of some rounds, by their median, after one that does not count."""
    found = []
    for _ in range(rounds + 1):
        synchronize(device)
        started = time.perf_counter()
        work()
        synchronize(device)
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def peak(world: World) -> float:
    """Measure products of large random matrices in bf16, in operations per second."""
    size = world.size.matrix
    one, other = torch.randn(2, size, size, device=world.device).bfloat16()
    out = torch.empty_like(one)
    return 2 * size**3 / seconds(lambda: torch.mm(one, other, out=out), world.device, world.size.rounds)


def bandwidth(world: World) -> float:
    """Measure how fast memory is copied, in bytes per second, read and written."""
    one = torch.randn(world.size.vectors, world.size.dimension, device=world.device)
    other = torch.empty_like(one)
    return 2 * one.nbytes / seconds(lambda: other.copy_(one), world.device, world.size.rounds)


def bounds(world: World) -> Found:
    """Measure both bounds."""
    return Found(f"{peak(world) / 1e12:.1f} TFLOP/s, {bandwidth(world) / 1e9:.0f} GB/s", "", None)


def operations(config: Any, counts: npt.NDArray[np.integer]) -> float:
    """Count the operations of one pass forward over texts of so many tokens: two per weight and token, and attention.

    Per layer 4 h^2 weights of attention and 2 h i of what follows; queries times keys, and weights times values, are
    4 h operations per pair of tokens.
    """
    hidden, layers = config.hidden_size, config.num_hidden_layers
    weights = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    tokens = counts.astype(np.float64)
    return float(layers * (2 * weights * tokens.sum() + 4 * hidden * (tokens**2).sum()))


def measured_model(world: World, count: int) -> tuple[Encoder, Texts, Texts]:
    """Make the model that is measured, and passages and queries as long as those of MS MARCO."""
    folder = world.path("measured")
    if not folder.exists():
        make_model(folder, world.size.model, world.size.vocabulary)
    settings = EncoderSettings(
        dimension=world.size.dimension, query_length=LENGTHS["query_length"], passage_length=LENGTHS["passage_length"]
    )
    encoder, template = new_encoder(folder, settings, 1), load_template(folder)
    found = []
    for kind, drawn in (("passage", PASSAGE), ("query", QUERY)):
        if not (path := world.path(f"{kind}.{count}.arrow")).exists():
            make_tokens(path, folder, lengths(count, drawn, 9), kind[0])
        found.append(texts_of(Tokens(path), template, settings, kind))
    return encoder, found[0], found[1]


def encode_passages(world: World, compiled: bool = False) -> Found:
    """Encode passages as the stage does, in bf16: share of the peak; with other budgets of tokens, too."""
    if compiled and world.device == "cpu":
        return Found("not on a CPU", "", None)
    encoder, texts, _ = measured_model(world, world.size.encoded)
    rows, most, device = np.arange(len(texts.tokens)), peak(world), torch.device(world.device)
    work = operations(encoder.transformer.config, texts.lengths(rows))
    encoder.eval().place(device, "bf16")
    if compiled:
        encoder.transformer.compile(dynamic=True)

    def encode_all() -> None:
        for start in range(0, len(rows), encode.BLOCK):
            block = start, min(start + encode.BLOCK, len(rows))
            encode.encode_block(block, encoder, texts, device, "bf16", "fp32")

    found: dict[str, float] = {}
    usual = TOKEN_BUDGETS[device.type]
    for budget in (usual,) if compiled else (usual, 2 * usual, 4 * usual):
        with patch.dict(TOKEN_BUDGETS, {device.type: budget}):
            found[f"{budget} tokens at once"] = work / seconds(encode_all, world.device, 2) / most
    share = found[f"{usual} tokens at once"]
    return at_least(share, GOAL_ENCODE, **found, passages_per_second=len(rows) * share * most / work)


def forward_plainly(
    longest: bool | None, model: Callable[[Any], Tensor], sequences: Sequences, device: torch.device, _: int
) -> Tensor:
    """Run a mini-batch as it comes, padded to its longest text or to the most tokens that a text of its kind has."""
    if longest:
        return forward_by_length(model, sequences, device, sys.maxsize)
    batch = sequences.batch(np.arange(len(sequences.lengths)))
    width, pad = batch["input_ids"].shape[1], sequences.template.pad
    missing = (LENGTHS["query_length"] if width <= LENGTHS["query_length"] else LENGTHS["passage_length"]) - width
    filled = {
        name: torch.nn.functional.pad(one, (0, missing), value=pad if name == "input_ids" else 0)
        for name, one in batch.items()
    }
    return model({name: one.to(device) for name, one in filled.items()})


def triples_per_second(world: World, longest: bool | None = None, **changes: Any) -> tuple[float, float]:
    """Train some updates as the paper does; triples per second after the first, and operations of a triple.

    :param longest: one mini-batch after the other instead, padded to its longest text or not.
    """
    size, updates = world.size, 2 if longest is not None else world.size.updates
    count = MINI_BATCH * size.accumulation * updates
    encoder, passages, queries = measured_model(world, max(count, size.encoded))
    rows = np.random.default_rng(1).integers(0, len(passages.tokens), (3, count))
    texts = TripleTexts(rows, queries, passages, make_objective(ObjectiveSettings(), "angular"))
    settings = TrainingSettings(gradient_accumulation=size.accumulation, warmup_updates=0, **changes)
    nothing: Any = lambda *_: Validation(1.0)  # noqa: E731
    task = Task(encoder, count, count, texts.split, texts.losses, nothing, nothing)
    plain = partial(forward_plainly, longest)
    patched = patch("cort.training.microbatches.forward_by_length", plain) if longest is not None else nullcontext()
    with working_on(world.device), patched:
        make_deterministic(settings.seed, torch.get_num_threads())
        curve, _ = fit(task, settings)
    found = [point.examples_per_second for point in curve[2:] if point.examples_per_second]
    parts = ((queries, rows[0]), (passages, rows[1]), (passages, rows[2]))
    work = sum(operations(encoder.transformer.config, some.lengths(which)) for some, which in parts)
    return statistics.median(found), 3 * work / count


def train(world: World, compiled: bool = False) -> Found:
    """Train CoRT's encoder in bf16: share of the peak, which is thrice the arithmetic of a pass forward."""
    if compiled and world.device == "cpu":
        return Found("not on a CPU", "", None)
    most, shares, speeds = peak(world), dict[str, float](), dict[str, float]()
    several = (8_192, 32_768, 65_536) if world.device != "cpu" else (1_024,)
    for tokens in several[-1:] if compiled else several:
        speed, work = triples_per_second(world, precision="bf16", tokens_at_once=tokens, compile=compiled)
        shares[f"{tokens} tokens at once"], speeds[f"{tokens} tokens at once, triples/s"] = speed * work / most, speed
    return at_least(max(shares.values()), GOAL_TRAIN, **shares, **speeds)


def plain_training(world: World) -> Found:
    """Train in bf16, many mini-batches at once, beside one mini-batch after the other in fp32."""
    tokens = 65_536 if world.device != "cpu" else 1_024
    ours, _ = triples_per_second(world, precision="bf16", tokens_at_once=tokens)
    single, _ = triples_per_second(world, tokens_at_once=tokens)
    full, _ = triples_per_second(world, longest=False, tokens_at_once=1)
    longest, _ = triples_per_second(world, longest=True, tokens_at_once=1)
    details = {"bf16, triples/s": ours, "fp32, triples/s": single, "plain, padded to the most tokens, triples/s": full}
    details |= {"plain, padded to the longest of a mini-batch, triples/s": longest, "to the latter": ours / longest}
    return at_least(ours / full, GOAL_TRIPLES, **details)


def search(world: World) -> Found:
    """Search random unit vectors: time of one query beside that of reading the codes of all passages once."""
    size, device = world.size, world.device
    reading = size.vectors * size.dimension / bandwidth(world)
    vectors = torch.randn(size.vectors, size.dimension, device=device)
    vectors /= vectors.norm(dim=1, keepdim=True)
    shard = in_memory(vectors.cpu().numpy())
    asked = torch.nn.functional.normalize(torch.randn(256, size.dimension), dim=1).numpy()
    del vectors
    found: dict[str, Any] = {"reading the codes, ms": reading * 1e3}
    rankings = []
    for name, coded in (("codes", True), ("fp32", False)):
        times, ranking = _searched(world, shard, asked, coded)
        found |= {f"{name}, {what}": value for what, value in times.items()}
        rankings.append(ranking)
    found["results"] = "the same" if np.array_equal(rankings[0], rankings[1]) else "different"
    ratio = found["codes, 1 queries, ms"] / found["reading the codes, ms"]
    passed = ratio <= GOAL_SEARCH and found["results"] == "the same"
    return Found(ratio, f"at most {GOAL_SEARCH:g}", passed, found)


def _searched(
    world: World, shard: Shard, asked: Vectors, coded: bool
) -> tuple[dict[str, float], npt.NDArray[np.int64]]:
    """Search for one query to many: milliseconds, also those of the first pass alone; and what was found.

    After the first pass the CPU scores exactly.
    """
    size, found = world.size, dict[str, float]()
    memory_mb = 5 * size.vectors * size.dimension >> 20
    index = ExactIndex([shard], [world.device], os.cpu_count() or 1, memory_mb, coded=coded)
    (part,) = index._parts
    for batch in (1, 32, 256):
        queries, rounds = asked[:batch], size.rounds if batch == 1 else 3
        first: Callable[[], object] = partial(part.candidates, torch.from_numpy(queries), DEPTH)
        for name, work in (("", partial(index.search, queries, DEPTH)), (", first pass", first)):
            found[f"{batch} queries{name}, ms"] = 1e3 * seconds(work, world.device, rounds)
    return found, np.stack([places for _, places in index.search(asked[:32], DEPTH)])
