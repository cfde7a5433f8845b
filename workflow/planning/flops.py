"""Count the arithmetic of the stages that run a transformer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from cort.encode_tokens import BLOCK as TOKENS_ENCODED
from cort.expand import TOKEN_BUDGETS as EXPANDED
from cort.score import BLOCK as PAIRS_AT_ONCE
from workflow.experiment.config import Config
from workflow.experiment.models import LEARNERS, released_name, reranked_by
from workflow.planning.dryrun import Job
from workflow.planning.facts import UNKNOWN, Facts, Model, Texts
from workflow.planning.passes import (
    LENGTH,
    Pass,
    encode_texts,
    encode_triple,
    is_late,
    read_by,
    score_example,
    score_pairs,
)

# Those that encode texts to a vector per token, and search these.
LATE = ("encode_tokens", "retrieve_tokens", "retrieve_ivfpq")
# Stages that run a transformer: the section of their model.
HEAVY = {
    **dict.fromkeys(("train", "encode", "encode_queries"), "encoders"),
    **dict.fromkeys(("train_weigher", "weigh"), "weighers"),
    **dict.fromkeys(("train_expander", "expand"), "expanders"),
    **dict.fromkeys(("train_reranker", "score", "score_triples", "score_expansions"), "rerankers"),
    **dict.fromkeys(LATE, "rerankers"),
}
TRAININGS = ("train", "train_reranker", "train_weigher", "train_expander")
# Stages that provide the transformers: the section of what they are.
PROVIDERS = {
    "base_model": "base_models",
    "pretrained_encoder": "encoders",
    "pretrained_reranker": "rerankers",
    "pretrained_weigher": "weighers",
    "pretrained_expander": "expanders",
}
BYTES = {"fp32": 4, "fp16": 2}
# Bytes per token, layer and unit of width that training keeps for its way back; per weight of its state: weights,
# gradients, two moments of AdamW; of a checkpoint, of which three are kept or being written.
ACTIVATIONS, STATE, CHECKPOINTS = 80, 16, 3 * 16
# Bytes of a term with its weight, if every other token is one.
TERM_BYTES = 7
# Bytes of a predicted query in its file, for each of its characters; queries of a passage on a line of doc2query's.
PACKED, PREDICTED = 0.3, 10
# Tokens that are encoded at a time (`TOKEN_BUDGETS` of the transformers, which would take long to import).
ENCODED = {"cpu": 1_024, "cuda": 16_384}
# Bytes of a pair's score, and while others of its job are to come.
SCORE_BYTES, UNFINISHED_SCORE_BYTES = 18, 40
# Time of an operation on token vectors where all passages are searched, in that of a transformer's.
SEARCHED = 1.5


class Work(NamedTuple):
    """Operations of a job, and bytes: of memory beyond its program's, of files, of files needed meanwhile.

    `checkpoints` are those of a training, written if it takes long enough; `width` is the model's.
    """

    flops: float
    width: int
    memory: float
    disk: float
    temporary: float = 0
    checkpoints: float = 0


def base_model_of(job: Job) -> str | None:
    """Name the base model that a job provides or reads."""
    section = PROVIDERS.get(job.rule, "base_models")
    name = job.wildcards.get(section.removesuffix("s"))
    return name if name is None or section == "base_models" else released_name(section, name)


def model_of(job: Job, config: Config) -> str:
    """Name the model that a heavy job runs."""
    if job.rule in ("retrieve_tokens", "retrieve_ivfpq"):
        return str(config["systems"][job.wildcards["system"]]["retrieve"])
    if job.rule == "score_expansions":
        return str(config["expanders"][job.wildcards["expander"]]["filter"]["reranker"])
    return job.wildcards[HEAVY[job.rule][:-1]]


def settings_of(job: Job, config: Config) -> Config:
    """Find a heavy job's settings that have its precision."""
    settings: Config = config[HEAVY[job.rule]][model_of(job, config)]
    return settings["training"] if job.rule in TRAININGS else settings


def examples(section: str, name: str, split: str, config: Config, facts: Facts) -> float:
    """Count the triples of an encoder, or the pairs of a re-ranker, in all epochs."""
    settings = config[section][name]
    source = settings[LEARNERS[section][1]]
    if split == "train" and "file" in source:
        return float(facts.taken(source) * (2 if section == "rerankers" else 1) * settings["training"]["epochs"])
    queries = facts.queries[split].count if split in facts.queries else 0
    drawn = min(queries, source["maximum_queries"] or queries)
    return float(drawn * (1 + source.get("negatives", 0)) * (settings["training"]["epochs"] if split == "train" else 1))


def work(job: Job, config: Config, facts: Facts, device: str = "cpu") -> Work:
    """Count a heavy job's work, with the memory of a device of that type."""
    section, split = HEAVY[job.rule], job.wildcards.get("split", "train")
    name = model_of(job, config)
    settings, passages = config[section][name], facts.passages
    model = read_by(settings, facts.models[settings["base_model"]])
    queries = facts.queries.get(split, facts.passages)
    if job.rule in ("train", "train_reranker"):
        example, pairs = encode_triple(settings, model, queries, passages), 1
        if section == "rerankers":
            example, pairs = score_example(settings, model, queries, passages)
        counts = [examples(section, name, part, config, facts) / pairs for part in ("train", "validation")]
        return _training(settings["training"], model, example, *counts)
    memory = 4 * model.weights + ACTIVATIONS * ENCODED[device] * model.hidden
    if section == "weighers":
        length, count = passages.tokens(settings["passage_length"]), passages.count
        if job.rule == "train_weigher":
            # A passage for each query, mostly.
            seen = facts.queries["train"].count * settings["training"]["epochs"]
            training = {**settings["training"], "gradient_checkpointing": False}
            return _training(training, model, encode_texts(model, 1, length), seen, facts.queries["validation"].count)
        share = count / _shards(job)
        disk = temporary = share * (TERM_BYTES * length + passages.id_characters + 8)
        return Work(encode_texts(model, share, length).flops, model.hidden, memory, disk, temporary)
    if section == "expanders":
        asked = facts.queries.get("train") or next(iter(facts.queries.values()), UNKNOWN)
        return _expansion(job, settings, model, asked, facts, device)
    if section == "encoders":
        texts, limit = (queries, "query_length") if job.rule == "encode_queries" else (passages, "passage_length")
        count = texts.count / _shards(job)
        length = texts.tokens(settings.get(limit, LENGTH))
        # Finished blocks are kept until the shard is whole.
        disk = temporary = count * (
            settings.get("dimension", model.hidden) * BYTES[settings["storage"]] + texts.id_characters + 8
        )
        return Work(encode_texts(model, count, length).flops, model.hidden, memory, disk, temporary)
    if job.rule in LATE:
        system = config["systems"].get(job.wildcards.get("system", ""), {})
        most = system["ivfpq"]["candidates"] if "ivfpq" in system else passages.count
        return _late_retrieval(job, settings, model, queries, passages, most, memory)
    count = _scored(job, settings, queries, config, facts)
    # Passages of one block that differ, of as many as are drawn.
    block = max(min(count, PAIRS_AT_ONCE), 1)
    own = passages.count * -math.expm1(-block / max(passages.count, 1))
    scored = score_pairs(settings, model, queries, passages, count, (queries.count, own * count / block))
    if is_late(settings):
        memory += own * settings["max_length"] * 4 * (settings["dimension"] + 1)
    return Work(scored.flops, model.hidden, memory, SCORE_BYTES * count, UNFINISHED_SCORE_BYTES * count)


def _shards(job: Job) -> int:
    """Count the shards of which a job makes one."""
    return int(job.wildcards.get("scatteritem", "1-of-1").rpartition("-")[2])


def _scored(job: Job, settings: Config, queries: Texts, config: Config, facts: Facts) -> float:
    """Count the pairs that a job scores."""
    split, passages = job.wildcards.get("split", "train"), facts.passages.count
    if job.rule == "score":
        # Candidates of one run are partly those of another.
        runs = max(len(reranked_by(config, model_of(job, config), split)), 1)
        return float(queries.count * min(settings["depth"], passages) * (1 + 0.5 * (runs - 1)))
    if job.rule == "score_expansions":
        predicted: int = config["expanders"][job.wildcards["expander"]].get("queries", PREDICTED)
        return passages * predicted / _shards(job)
    # A query's positive is the same in every epoch, mostly.
    return examples("encoders", job.wildcards["encoder"], split, config, facts) + queries.count


def _expansion(job: Job, settings: Config, model: Model, asked: Texts, facts: Facts, device: str) -> Work:
    """Write queries about passages, or learn to."""
    length, written = facts.passages.tokens(settings["passage_length"]), asked.tokens(settings["query_length"], 1)
    # A layer that writes looks at the passage, too: four more matrices, of which two give its keys and values.
    square = model.hidden**2
    reading = length * (model.flops(length) + model.layers * 4 * square)
    step = model.layers * (2 * model.layer_weights + 4 * square + 4 * length * model.hidden)
    writing = written * (step + 2 * model.vocabulary * model.embedding)
    both = replace(
        model, layers=2 * model.layers, weights=model.weights + model.layers * (model.layer_weights + 4 * square)
    )
    if job.rule == "train_expander":
        seen = facts.judged("train") * settings["training"]["epochs"]
        training = {**settings["training"], "gradient_checkpointing": False}
        return _training(training, both, Pass(length + written, reading + writing), seen, facts.judged("validation"))
    count = facts.passages.count / _shards(job)
    searched: int = settings["beams"] if "beams" in settings else settings["queries"]
    # Keys and values of the passages of a batch, once for each of their queries.
    kept = min(EXPANDED[device], count * searched * length) * model.layers * 2 * model.hidden * 4
    disk = count * (asked.mean * settings["queries"] * PACKED + facts.passages.id_characters + 8)
    return Work(count * (reading + searched * writing), model.hidden, 4 * both.weights + 2 * kept, disk, disk / PACKED)


def _late_retrieval(
    job: Job, settings: Config, model: Model, queries: Texts, passages: Texts, most: float, memory: float
) -> Work:
    """Encode the tokens of passages, or compare each of a query with all of them, or of `most` passages."""
    length = passages.tokens(settings["max_length"])
    if job.rule == "encode_tokens":
        count = passages.count / _shards(job)
        disk = count * (length * settings["dimension"] * BYTES["fp16"] + passages.id_characters + 8)
        filled = min(count, TOKENS_ENCODED) * settings["max_length"] * 4 * (settings["dimension"] + 1)
        # Finished blocks are kept until the shard is whole.
        return Work(encode_texts(model, count, length).flops, model.hidden, memory + 2 * filled, disk, disk)
    query = settings["query_length"] if settings["fill_queries"] else queries.tokens(settings["query_length"])
    compared = min(passages.count, most * query)
    products = 2 * queries.count * query * compared * length * settings["dimension"]
    encoded = encode_texts(model, queries.count, query).flops
    return Work(encoded + SEARCHED * products, model.hidden, memory, 0)


def _training(training: Config, model: Model, example: Pass, seen: float, validated: float) -> Work:
    """Train on so many `seen` examples, checked by `validated` ones."""
    batch, update = training["batch_size"], training["batch_size"] * training["gradient_accumulation"]
    every = training["validate_every"]
    checked = validated * (1 / every if every < 1 else seen // update // every + 1)
    # Activations wait for their gradients in as many mini-batches as are encoded together.
    waiting = min(training["tokens_at_once"], min(update, seen) * example.tokens)
    waiting = waiting if training["gradient_checkpointing"] else max(waiting, min(batch, seen) * example.tokens)
    return Work(
        flops=example.flops * (3 * seen + checked),
        width=model.hidden,
        memory=ACTIVATIONS * waiting * model.layers * model.hidden + STATE * model.weights,
        # Best and last.
        disk=2 * 4 * model.weights,
        checkpoints=CHECKPOINTS * model.weights,
    )
