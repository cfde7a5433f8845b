"""All keys of an experiment, but for what its systems say: their classes declare that, above this module."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cort.config.collection import Collection, Downloads, Endpoint, Split
from cort.config.evaluation import Audit, Deployment, Evaluation, Latency, Submission
from cort.config.fields import Name, Seed, SplitName, SystemName
from cort.config.learners import Encoder, Reranker
from cort.config.lexical import Expander, LexicalIndex, Weigher
from cort.config.models import BaseModel
from cort.runtime.sections import SPEED, Maybe, Section, Several, Text, same_as


class TopLevel(Section):
    """Everything that determines the results of one experiment."""

    dataset: Name
    """Name of the experiment; its files are under `results/<dataset>/`."""
    extends: Annotated[Maybe[Text], SPEED] = None
    """Another experiment file, of which this one is a variation: missing top-level sections are taken from it as a
    whole, or those of its entries that a list names here; null leaves a section out. The path is relative to the
    project's folder."""
    title: Text = "First-stage ranking"
    """Heading of the report."""
    seed: int = same_as(Seed, "seed")
    """Seed of every random choice (splits, initial weights, sampling, dropout)."""
    protect: Annotated[bool, SPEED] = True
    """Write-protect trained models: a change that would retrain one is refused, until its files are made writable or
    the changed model gets a new name."""
    shards: Annotated[int, Field(ge=1, le=10_000), SPEED] = 1
    """Jobs that encode, expand or weigh the passages, each with a GPU. Another number encodes them again, with the same
    results."""
    downloads: Downloads = Field(default_factory=Downloads)
    """Public files. `download:NAME` can replace the path of any raw file; cort/downloads/catalog.yaml has the names."""
    collection: Collection
    """Where the passages come from: one of `passages` (files), `documents`, `folder`, `irds`, `hf` and `pydocs`."""
    splits: dict[SplitName, Split] = Field(min_length=1)
    """Sets of queries by name. `train` and `validation` serve training and tuning; every other split is ranked and
    reported, and measured if it has judgements."""
    endpoint: Maybe[Endpoint] = None
    """The language model that makes queries (`generate`) and judges (`judge`)."""
    depth: int = Field(1000, ge=1, le=100_000)
    """Passages retrieved per query of an evaluated split."""
    training_depth: int = Field(100, ge=1, le=100_000)
    """Passages retrieved per query of `train` and `validation`, for negatives."""
    lexical: dict[Name, LexicalIndex] = Field(default_factory=dict)
    """Term-based rankers by name: Anserini's BM25, each over its own index; `bm25`, over the original passages, always
    exists."""
    expanders: dict[Name, Expander] = Field(default_factory=dict)
    """Sources of queries that are appended to passages (doc2query, docTTTTTquery), by name."""
    weighers: dict[Name, Weigher] = Field(default_factory=dict)
    """Sources of term weights that replace term frequencies (DeepCT), by name."""
    base_models: dict[Name, BaseModel] = Field(default_factory=dict)
    """Starting points of training by name, each a transformer with its tokenizer."""
    encoders: dict[Name, Encoder] = Field(default_factory=dict)
    """Dense and sparse encoders by name."""
    rerankers: dict[Name, Reranker] = Field(default_factory=dict)
    """Re-rankers by name."""
    systems: dict[SystemName, Section]
    evaluation: Evaluation = Field(default_factory=Evaluation)
    """What is measured and shown."""
    audit: Audit = Field(default_factory=Audit)
    """Audit of the graph and IVF-PQ indexes that systems use against exact search, on every evaluated split, at `depth`
    and these depths below it."""
    latency: Maybe[Latency] = None
    """Measure how long searches take, by part, for single queries and batches of 32, to the `depth` of runs
    (`latency/<split>.json`, report)."""
    papers: Several[Text] = ()
    """Files of published numbers to compare with, like `config/papers.csv`."""
    submissions: dict[Name, Submission] = Field(default_factory=dict)
    """Submission files by name, `submissions/<name>.tsv` for the MS MARCO leaderboard or `.trec` for TREC. Runs that
    would be rejected there are refused."""
    deploy: dict[Name, Deployment] = Field(default_factory=dict)
    """Systems by a name, in the formats of search engines: `deploy/<name>/`."""
