"""What is checked and measured, in this order, and how long each may take."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from scripts.gpu import checks, figures, searches, trainings
from scripts.gpu.results import Found
from scripts.gpu.world import World

CHECK, FIGURE = "check", "figure"


class Item(NamedTuple):
    """A check or a figure; `seconds` are the most it may take, so that a driver in trouble does not take all."""

    name: str
    kind: str
    work: Callable[[World], Found]
    seconds: float = 60


KINDS = checks.RERANKERS
ITEMS = [
    Item("products in fp32", CHECK, checks.multiply),
    *(Item(f"encode, {name}", CHECK, partial(checks.encode, precision=name)) for name in ("fp32", "bf16", "fp16")),
    Item("encode twice", CHECK, checks.encode_twice),
    *(Item(f"score, {kind}", CHECK, partial(checks.score, kind=kind)) for kind in KINDS),
    Item("score, cross_encoder, bf16", CHECK, partial(checks.score, kind="cross_encoder", precision="bf16")),
    Item("exact search, fp32", CHECK, partial(searches.search, coded=False)),
    Item("exact search, codes", CHECK, partial(searches.search, coded=True)),
    Item("exact search, two parts", CHECK, partial(searches.search, coded=False, devices=2)),
    Item("exact search, codes, two parts", CHECK, partial(searches.search, coded=True, devices=2)),
    Item("exact search, from main memory", CHECK, partial(searches.search, coded=False, streamed=True)),
    *(
        Item(f"late interaction, {name}", CHECK, partial(searches.search_tokens, similarity=name))
        for name in ("cosine", "l2")
    ),
    *(Item(f"train, {loss}", CHECK, partial(trainings.train_encoder, loss=loss)) for loss in trainings.OBJECTIVES),
    *(Item(f"train, {name}", CHECK, partial(trainings.train_encoder, precision=name)) for name in ("bf16", "fp16")),
    Item("train, gradient checkpointing", CHECK, partial(trainings.train_encoder, gradient_checkpointing=True)),
    *(Item(f"train twice, {name}", CHECK, partial(trainings.train_twice, precision=name)) for name in ("fp32", "bf16")),
    *(Item(f"resume, {name}", CHECK, partial(trainings.resume, precision=name)) for name in ("fp32", "bf16")),
    *(
        Item(f"train_reranker, {kind}", CHECK, partial(trainings.train_reranker, kind=kind))
        for kind in checks.RERANKERS
    ),
    Item("train_expander", CHECK, trainings.train_expander),
    Item("expand", CHECK, checks.expand),
    Item("weigh", CHECK, checks.weigh),
    Item("train as a worker", CHECK, trainings.worker),
    Item("two processes, one device", CHECK, checks.share_device),
    Item("bounds", FIGURE, figures.bounds),
    Item("encode, share of peak", FIGURE, figures.encode_passages, 120),
    Item("train, share of peak", FIGURE, figures.train, 150),
    Item("train, times as fast as plainly", FIGURE, figures.plain_training, 120),
    Item("exact search, times reading", FIGURE, figures.search, 150),
    Item("train, compiled", CHECK, trainings.train_compiled, 90),
    Item("train compiled, share of peak", FIGURE, partial(figures.train, compiled=True), 120),
    Item("encode compiled, share of peak", FIGURE, partial(figures.encode_passages, compiled=True), 120),
]
