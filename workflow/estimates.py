"""What planned jobs take of GPUs and of the disk, before anything runs.

Operations of transformers are counted from the numbers and lengths of texts and the sizes of models, and divided by
the speed that an H200 reached (docs/performance.md). Nothing is known of texts that are not there and not in the
catalogue, and of models that are neither here nor listed below: their jobs are named as not estimated.
"""

from __future__ import annotations

import heapq
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cort.config.entries import TRAINING_SPLITS
from cort.config.experiment import Experiment
from cort.config.learners import Learner
from cort.config.models import ReleasedExamples
from cort.downloads.catalog import load_catalog
from cort.systems.base import System
from workflow.command_line import columns
from workflow.facts import ID, LENGTH, Facts, Texts, public_texts
from workflow.forecast import GB, pairs_to_score
from workflow.snakemake_api import Job

GPU = "H200"
#: FLOP/s of large products: 790e12 measured in bf16; others are the same part of what the data sheet says
PRODUCTS = {"fp32": 53e12, "tf32": 395e12, "bf16": 790e12, "fp16": 790e12}
#: shares of it that BERT-base reached in bf16 with passages as long as MS MARCO's
SHARES = {"encode": 0.39, "train": 0.13}
#: FLOP/s of exact search: 256 queries take 94 ms over 8,841,823 vectors of 128 numbers
SEARCH = 2 * 256 * 8_841_823 * 128 / 0.094
#: the whole is right within this factor either way (docs/reproduction.md says what that rests on)
FACTOR = 2
#: seconds that are worth a word
LITTLE = 180
#: characters of a line of a run
LINE = 45
#: bytes of files for each byte of passages: the table, tokens and an index of Lucene (docs/performance.md)
TABLE, TOKENS, LUCENE = 0.7, 0.9, 1.3
#: sections of models by the rules that run them on a GPU, and what they do there
ON_GPU = {
    "train": ("encoders", "train"),
    "train_reranker": ("rerankers", "train"),
    "encode": ("encoders", "encode"),
    "encode_queries": ("encoders", "encode"),
    "encode_impacts": ("encoders", "encode"),
    "encode_query_impacts": ("encoders", "encode"),
    "encode_tokens": ("rerankers", "encode"),
    "score": ("rerankers", "encode"),
    "score_triples": ("rerankers", "encode"),
    "weigh": ("weighers", "encode"),
    "retrieve": ("systems", "search"),
    "negatives": ("systems", "search"),
    # Not estimated.
    "retrieve_tokens": ("systems", ""),
    "expand": ("expanders", ""),
    "latency": ("", ""),
}


# Time.


def seconds_of(job: Job, facts: Facts) -> float | None:
    """Estimate the seconds of a job on one GPU; 0 without one, None if too little is known."""
    if job.rule not in ON_GPU:
        return 0.0
    section, does = ON_GPU[job.rule]
    if does == "search":
        return _search(job, facts)
    operations = _operations(job, facts) if does else None
    if operations is None:
        return None
    model = getattr(facts.experiment.root, section)[job.wildcards[section[:-1]]]
    precision = model.training.precision if does == "train" else model.precision
    return operations / (SHARES[does] * PRODUCTS["bf16" if precision == "auto" else precision])


def _search(job: Job, facts: Facts) -> float | None:
    """Estimate the exact searches for the queries of a split: of a system, or of all that it is merged from."""
    experiment, queries = facts.experiment, facts.queries(job.wildcards["split"])
    systems = [experiment.systems[name] for name in experiment.with_parts([job.wildcards["system"]])]
    dimensions = [_dimension(system, facts) for system in systems if system.rule in ON_GPU]
    if queries is None or facts.passages is None or None in dimensions:
        return None
    return 2 * queries.number * facts.passages.number * sum(filter(None, dimensions)) / SEARCH


def _dimension(system: System, facts: Facts) -> int | None:
    """Return the numbers of the vectors that a system searches, if they are known."""
    if not ON_GPU[system.rule][1]:
        return None
    experiment, ((_, name), *_) = facts.experiment, system.models()
    dimension = getattr(experiment.encoders[name], "dimension", None)
    if dimension or experiment.is_served("encoders", name):
        return dimension
    size = facts.size(experiment.base_model_of("encoders", name))
    return size and size.hidden


def _operations(job: Job, facts: Facts) -> float | None:
    """Count the operations of a transformer; training takes three passes, or four with gradient checkpointing."""
    experiment, (section, does) = facts.experiment, ON_GPU[job.rule]
    name, split = job.wildcards[section[:-1]], job.wildcards.get("split", "train")
    model = getattr(experiment.root, section)[name]
    base = f"weigher.{name}" if section == "weighers" else experiment.base_model_of(section, name)
    size, passages = facts.size(base), facts.passages
    queries = facts.queries(split) if split in experiment.splits else None
    if size is None or passages is None or getattr(model, "kind", "") in ("knrm", "conv_knrm"):
        return None
    limit = getattr(model, "passage_length", None)
    if job.rule in ("encode", "encode_impacts", "encode_tokens", "weigh"):
        whole = job.wildcards.get("shard", "1-of-1").rpartition("-")[2]
        return size.operations(passages.number / int(whole), passages.tokens(limit))
    if queries is None:
        return None
    if job.rule in ("encode_queries", "encode_query_impacts"):
        return size.operations(queries.number, queries.tokens(model.query_length))
    asked = queries.tokens(model.query_length)
    if section == "encoders":
        groups, negatives = _groups(model, queries)
        own = size.operations(1, asked) + (1 + negatives) * size.operations(1, passages.tokens(limit))
    else:
        own = size.operations(1, min(asked + passages.tokens(None, special=1), model.max_length or LENGTH))
        groups, negatives = _groups(model, queries) if does == "train" else (_pairs(job, facts, queries), 0)
        own *= 1 + negatives
    passes = (4 if model.training.gradient_checkpointing else 3) if does == "train" else 1
    return passes * groups * own


def _groups(model: Learner, queries: Texts) -> tuple[float, int]:
    """Count the positives that a model is trained on in all epochs, and the negatives of each."""
    source, epochs = model.examples, model.training.epochs
    if isinstance(source, ReleasedExamples):
        known = public_texts([source.file])
        return epochs * (source.sample or source.limit or (known.number if known else 0)), 1
    drawn = epochs * min(queries.number, source.maximum_queries or queries.number)
    if getattr(source, "positives", "one") == "retrieved":
        return drawn * source.last_rank, 0
    return drawn, source.negatives


def _pairs(job: Job, facts: Facts, queries: Texts) -> float:
    """Count the pairs that a re-ranker scores, at most."""
    if job.rule == "score_triples":
        groups, negatives = _groups(facts.experiment.learners["encoders", job.wildcards["encoder"]], queries)
        return groups * (1 + negatives)
    planned = pairs_to_score(facts.experiment, set(job.outputs).__contains__)
    return sum(one.depth * queries.number for one in planned)


def wall_clock(jobs: Sequence[Job], seconds: Sequence[float], gpus: int) -> float:
    """Run jobs as soon as their inputs and a GPU are there, in their order; seconds until all have ended.

    What takes no time here, as all without a GPU, waits for none.
    """
    makers = {file: number for number, job in enumerate(jobs) for file in job.outputs}
    needed = [{makers[file] for file in job.inputs if file in makers} for job in jobs]
    waiting, running, done, now, free = [*range(len(jobs))], list[tuple[float, int]](), set[int](), 0.0, gpus
    while waiting or running:
        for number in [one for one in waiting if needed[one] <= done]:
            if free or not seconds[number]:
                waiting.remove(number)
                heapq.heappush(running, (now + seconds[number], number))
                free -= bool(seconds[number])
        now, ended = heapq.heappop(running)
        done.add(ended)
        free += bool(seconds[ended])
    return now


# Disk.


def bytes_of(job: Job, facts: Facts) -> float:
    """Estimate the bytes of the larger files that a job makes; 0 where too little is known."""
    experiment, passages, wildcards = facts.experiment, facts.passages, job.wildcards
    texts = passages.number * (passages.characters + ID) if passages else 0.0
    match job.rule:
        case "download":
            return load_catalog().find(f"{wildcards['source']}/{wildcards['file']}").about
        case "collection" | "bm25_index" | "impact_index":
            return (TABLE if job.rule == "collection" else LUCENE) * texts
        case "tokenize":
            return TOKENS * texts if wildcards["text"] == "passages" else 0
        case "base_model" | "pretrained_encoder" | "pretrained_reranker" | "pretrained_weigher":
            section = job.rule.removeprefix("pretrained_")
            name = wildcards[section]
            size = facts.size(name if section == "base_model" else f"{section}.{name}")
            return 4 * size.weights if size else 0
        case "train" | "train_reranker":
            section, _ = ON_GPU[job.rule]
            size = facts.size(experiment.base_model_of(section, wildcards[section[:-1]]))
            # Best and last.
            return 8 * size.weights if size else 0
        case "encode":
            encoder = experiment.encoders[wildcards["encoder"]]
            size = facts.size(experiment.base_model_of("encoders", wildcards["encoder"]))
            width = getattr(encoder, "dimension", None) or (size.hidden if size else 0)
            stored = 4 if getattr(encoder, "storage", "fp32") == "fp32" else 2
            return (passages.number if passages else 0) / experiment.root.shards * width * stored
    if "system" in wildcards and job.outputs[0].endswith(".trec"):
        queries, training = facts.queries(wildcards["split"]), wildcards["split"] in TRAINING_SPLITS[:1]
        depth = experiment.training_depth if training else experiment.depth
        return LINE * (queries.number if queries else 0) * depth
    return 0


# Text.


class Estimate(NamedTuple):
    """Seconds of GPUs by rule, and in all by number of GPUs; bytes of files; jobs by rule that are not estimated."""

    by_rule: dict[str, float]
    wall: dict[int, float]
    disk: float
    unknown: dict[str, int]

    @property
    def total(self) -> float:
        """Seconds of one GPU for all."""
        return sum(self.by_rule.values())


def estimate(experiment: Experiment, jobs: Sequence[Job]) -> Estimate:
    """Estimate what jobs take on one GPU and on four."""
    facts = Facts(experiment)
    found = [seconds_of(job, facts) for job in jobs]
    by_rule, unknown = dict[str, float](), dict[str, int]()
    for job, own in zip(jobs, found, strict=True):
        if own is None:
            unknown[job.rule] = unknown.get(job.rule, 0) + 1
        elif own:
            by_rule[job.rule] = by_rule.get(job.rule, 0) + own
    seconds = [own or 0.0 for own in found]
    wall = {gpus: wall_clock(jobs, seconds, gpus) for gpus in (1, 4)}
    return Estimate(by_rule, wall, sum(bytes_of(job, facts) for job in jobs), unknown)


def describe(found: Estimate) -> str:
    """Write an estimate; nothing if no job needs a GPU, and no file is large."""
    lines = []
    if found.total >= LITTLE:
        walls = ", ".join(f"{hours(seconds)} h with {gpus}" for gpus, seconds in _walls(found))
        parts = ", ".join(f"{rule} {hours(seconds)}" for rule, seconds in found.by_rule.items() if seconds >= LITTLE)
        lines = [
            f"On GPUs like the {GPU}, within a factor of {FACTOR}: {hours(found.total)} GPU hours ({parts}).",
            f"Stages without a GPU come on top of {walls}.",
        ]
    if found.unknown:
        missing = ", ".join(f"{rule}\xa0{count}" for rule, count in found.unknown.items())
        lines.append(f"Too little is known yet to estimate what these jobs take of a GPU: {missing}.")
    if found.disk >= GB / 10:
        lines.append(f"Files under results/: about {found.disk / GB:,.1f} GB, beside what is fetched.")
    lines = [textwrap.fill(line, columns(100), subsequent_indent="  ").replace("\xa0", " ") for line in lines]
    return "".join(f"{line}\n" for line in ["", *lines]) if lines else ""


def _walls(found: Estimate) -> Iterable[tuple[str, float]]:
    return ((f"{gpus} GPU{'s' * (gpus > 1)}", seconds) for gpus, seconds in found.wall.items())


def hours(seconds: float) -> str:
    """Write seconds as hours, with two digits."""
    amount = seconds / 3600
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}" if amount >= 0.095 else f"{amount:.2f}"
