"""All keys of an experiment."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from cort.runtime.keys import named, part_of, section, setting
from cort.settings import models
from cort.settings.collection import Collection, Downloads, Endpoint, Split
from cort.settings.config import Config
from cort.settings.evaluation import Audit, Deployment, Evaluation, Latency, Submission
from cort.settings.fields import NAME, SPLIT_NAME, SYSTEM_NAME, General, as_key
from cort.settings.lexical import Expander, LexicalIndex, Weigher
from cort.settings.models import BaseModel
from cort.systems.registry import AnySystem
from cort.training.losses import ENCODER_OBJECTIVES, RERANKER_OBJECTIVES, Objectives, classes_of


def loss_of(objectives: Objectives) -> Any:
    """Declare the choice of an objective, of which the first is the default."""
    meanings = [
        f"`{name}`: {inspect.getdoc(objective.loss)}".partition("\n")[0] for name, objective in objectives.items()
    ]
    return setting(next(iter(objectives)), choices=tuple(objectives), meaning=" ".join(["Objective.", *meanings]))


@section
class Encoder(*classes_of(ENCODER_OBJECTIVES), models.Encoder):  # type: ignore[misc]
    """An encoder with the keys of its objectives."""

    loss: str = loss_of(ENCODER_OBJECTIVES)


@section
class Reranker(*classes_of(RERANKER_OBJECTIVES), models.Reranker):  # type: ignore[misc]
    """A re-ranker with the keys of its objectives."""

    loss: str = loss_of(RERANKER_OBJECTIVES)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Everything that determines the results of one experiment.

    Defaults are the CoRT paper's where it gives a value; docs/reproduction.md lists the exceptions.
    """

    dataset: str = setting(pattern=NAME)
    """Name of the experiment; its files are under `results/<dataset>/`."""
    extends: str | None = setting(None, affects_results=False)
    """Another experiment file, of which this one is a variation: missing top-level sections are taken from it as a
    whole, or those of its entries that a list names here; null leaves a section out. The path is relative to the
    project's folder."""
    title: str = "First-stage ranking"
    """Heading of the report."""
    seed: int = as_key(General, "seed")
    """Seed of every random choice (splits, initial weights, sampling, dropout)."""
    protect: bool = setting(True, affects_results=False)
    """Write-protect trained models: a change that would retrain one is refused, until its files are made writable or
    the changed model gets a new name."""
    shards: int = setting(1, ge=1, le=10_000, affects_results=False)
    """Jobs that encode, expand or weigh the passages, each with a GPU. Another number encodes them again, with the same
    results."""
    downloads: Downloads = field(default_factory=Downloads)
    """Public files. `download:NAME` can replace the path of any raw file; cort/downloads/catalog.yaml has the names."""
    collection: Collection
    """Where the passages come from: one of `passages` (files), `documents`, `folder`, `irds`, `hf` and `pydocs`."""
    splits: dict[str, Split] = named(SPLIT_NAME, required=True)
    """Sets of queries by name. `train` and `validation` serve training and tuning; every other split is ranked and
    reported, and measured if it has judgements."""
    endpoint: Endpoint | None = None
    """The language model that makes queries (`generate`) and judges (`judge`)."""
    depth: int = as_key(General, "depth")
    """Passages retrieved per query of an evaluated split."""
    training_depth: int = setting(100, ge=1, le=100_000)
    """Passages retrieved per query of `train` and `validation`, for negatives."""
    lexical: dict[str, LexicalIndex] = named(NAME)
    """Term-based rankers by name: Anserini's BM25, each over its own index; `bm25`, over the original passages, always
    exists."""
    expanders: dict[str, Expander] = named(NAME)
    """Sources of queries that are appended to passages (doc2query, docTTTTTquery), by name."""
    weighers: dict[str, Weigher] = named(NAME)
    """Sources of term weights that replace term frequencies (DeepCT), by name."""
    base_models: dict[str, BaseModel] = named(NAME)
    """Starting points of training by name, each a transformer with its tokenizer."""
    encoders: dict[str, Encoder] = named(NAME)
    """Dense and sparse encoders by name."""
    rerankers: dict[str, Reranker] = named(NAME)
    """Re-rankers by name."""
    systems: dict[str, AnySystem] = named(SYSTEM_NAME, required=True)
    """What is evaluated, by name; each system has one run per split, and exactly one of `retrieve`, `interleave`,
    `fuse`, `rerank` and `run`."""
    evaluation: Evaluation = field(default_factory=Evaluation)
    """What is measured and shown."""
    audit: Audit = field(default_factory=Audit)
    """Audit of the graph and IVF-PQ indexes that systems use against exact search, on every evaluated split, at `depth`
    and these depths below it."""
    latency: Latency | None = None
    """Measure how long searches take, by part, for single queries and batches of 32, to the `depth` of runs
    (`latency/<split>.json`, report)."""
    papers: tuple[str, ...] = ()
    """Files of published numbers to compare with, like `config/papers.csv`."""
    submissions: dict[str, Submission] = named(NAME)
    """Submission files by name, `submissions/<name>.tsv` for the MS MARCO leaderboard or `.trec` for TREC. Runs that
    would be rejected there are refused."""
    deploy: dict[str, Deployment] = named(NAME)
    """Systems by a name, in the formats of search engines: `deploy/<name>/`."""


def affecting_results(config: Config, hint: Any = Experiment) -> Config:
    """Copy the settings that affect results, not only speed or safety."""
    parts = ((name, value, part_of(hint, name)) for name, value in config.items())
    return {
        name: affecting_results(value, part.hint) if isinstance(value, dict) else value
        for name, value, part in parts
        if part.rules.get("affects_results", True)
    }
