"""Count the arithmetic of the stages that run a transformer."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from cort.encode_tokens import BLOCK as TOKENS_ENCODED
from cort.expand import TOKEN_BUDGETS as EXPANDED
from cort.score import BLOCK as PAIRS_AT_ONCE
from cort.training.settings import RERANKING_OBJECTIVES
from workflow.experiment.config import Config
from workflow.experiment.models import LEARNERS, released_name, reranked_by
from workflow.planning.dryrun import Job
from workflow.planning.facts import UNKNOWN, Facts, Model, Texts

# Stages that run a transformer: the section of their model.
HEAVY = {
    **dict.fromkeys(("train", "encode", "encode_queries"), "encoders"),
    **dict.fromkeys(("train_weigher", "weigh"), "weighers"),
    **dict.fromkeys(("train_expander", "expand"), "expanders"),
    **dict.fromkeys(("train_reranker", "score", "score_triples", "encode_tokens", "retrieve_tokens"), "rerankers"),
    "score_expansions": "rerankers",
}
TRAININGS = ("train", "train_reranker", "train_weigher", "train_expander")
KERNEL_POOLING, LONGEST_NGRAM = ("knrm", "conv_knrm"), 3
# Stages that provide the transformers: the section of what they are.
PROVIDERS = {
    "base_model": "base_models",
    "pretrained_encoder": "encoders",
    "pretrained_reranker": "rerankers",
    "pretrained_weigher": "weighers",
    "pretrained_expander": "expanders",
}
# Tokens, where a released model's own files say it.
LENGTH = 512
BYTES = {"fp32": 4, "fp16": 2}
# Bytes per token, layer and unit of width that training keeps for its way back; per weight of its state: weights,
# gradients, two moments of AdamW; of a checkpoint, of which three are kept or being written.
ACTIVATIONS, STATE, CHECKPOINTS = 80, 16, 3 * 16
# Bytes of a term with its weight, if every other token is one.
TERM_BYTES = 7
# Bytes of a predicted query in its file, for each of its characters; queries of a passage on a line of doc2query's.
PACKED, PREDICTED = 0.3, 10
# Tokens that are encoded at a time; bytes of a pair's score, and while others of its job are to come.
TOKEN_BUDGET, SCORE_BYTES, UNFINISHED_SCORE_BYTES = 1_024, 18, 40
# Time of an operation on token vectors in that of a transformer's: what they are copied to and their maxima take most;
# and where all passages are searched, of larger matrices and without the copies.
PRODUCT, SEARCHED = 7, 1.5
# Operations of a transformer in the time in which all kernels count one cosine of two words or n-grams.
POOLING = 15_000


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


class Pass(NamedTuple):
    """Tokens that a transformer reads, and the operations of one pass forward over them."""

    tokens: float
    flops: float


def base_model_of(job: Job) -> str | None:
    """Name the base model that a job provides or reads."""
    section = PROVIDERS.get(job.rule, "base_models")
    name = job.wildcards.get(section.removesuffix("s"))
    return name if name is None or section == "base_models" else released_name(section, name)


def model_of(job: Job, config: Config) -> str:
    """Name the model that a heavy job runs."""
    if job.rule == "retrieve_tokens":
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


def work(job: Job, config: Config, facts: Facts) -> Work:
    """Count a heavy job's work."""
    section, split = HEAVY[job.rule], job.wildcards.get("split", "train")
    name = model_of(job, config)
    settings, passages = config[section][name], facts.passages
    model = _read_by(settings, facts.models[settings["base_model"]])
    queries = facts.queries.get(split, facts.passages)
    if job.rule in ("train", "train_reranker"):
        example, pairs = _triple(settings, model, queries, passages), 1
        if section == "rerankers":
            example, pairs = _example(settings, model, queries, passages)
        counts = [examples(section, name, part, config, facts) / pairs for part in ("train", "validation")]
        return _training(settings["training"], model, example, *counts)
    memory = 4 * model.weights + ACTIVATIONS * TOKEN_BUDGET * model.hidden
    if section == "weighers":
        length, count = passages.tokens(settings["passage_length"]), passages.count
        if job.rule == "train_weigher":
            # A passage for each query, mostly.
            seen = facts.queries["train"].count * settings["training"]["epochs"]
            training = {**settings["training"], "gradient_checkpointing": False}
            return _training(training, model, _texts(model, 1, length), seen, facts.queries["validation"].count)
        disk = temporary = count * (TERM_BYTES * length + passages.id_characters + 8)
        return Work(_texts(model, count, length).flops, model.hidden, memory, disk, temporary)
    if section == "expanders":
        asked = facts.queries.get("train") or next(iter(facts.queries.values()), UNKNOWN)
        return _expansion(job, settings, model, asked, facts)
    if section == "encoders":
        texts, limit = (queries, "query_length") if job.rule == "encode_queries" else (passages, "passage_length")
        count = texts.count / int(job.wildcards.get("scatteritem", "1-of-1").rpartition("-")[2])
        length = texts.tokens(settings.get(limit, LENGTH))
        # Finished blocks are kept until the shard is whole.
        disk = temporary = count * (
            settings.get("dimension", model.hidden) * BYTES[settings["storage"]] + texts.id_characters + 8
        )
        return Work(_texts(model, count, length).flops, model.hidden, memory, disk, temporary)
    if job.rule in ("encode_tokens", "retrieve_tokens"):
        return _late_retrieval(job, settings, model, queries, passages, memory)
    count = _scored(job, settings, queries, config, facts)
    # Passages of one block that differ, of as many as are drawn.
    block = max(min(count, PAIRS_AT_ONCE), 1)
    own = passages.count * -math.expm1(-block / max(passages.count, 1))
    scored = _pairs(settings, model, queries, passages, count, (queries.count, own * count / block))
    if is_late(settings):
        memory += own * settings["max_length"] * 4 * (settings["dimension"] + 1)
    return Work(scored.flops, model.hidden, memory, SCORE_BYTES * count, UNFINISHED_SCORE_BYTES * count)


def _scored(job: Job, settings: Config, queries: Texts, config: Config, facts: Facts) -> float:
    """Count the pairs that a job scores."""
    split, passages = job.wildcards.get("split", "train"), facts.passages.count
    if job.rule == "score":
        # Candidates of one run are partly those of another.
        runs = max(len(reranked_by(config, model_of(job, config), split)), 1)
        return float(queries.count * min(settings["depth"], passages) * (1 + 0.5 * (runs - 1)))
    if job.rule == "score_expansions":
        predicted: int = config["expanders"][job.wildcards["expander"]].get("queries", PREDICTED)
        return passages * predicted / int(job.wildcards["scatteritem"].rpartition("-")[2])
    # A query's positive is the same in every epoch, mostly.
    return examples("encoders", job.wildcards["encoder"], split, config, facts) + queries.count


def _expansion(job: Job, settings: Config, model: Model, asked: Texts, facts: Facts) -> Work:
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
        seen = facts.queries["train"].count * settings["training"]["epochs"]
        training = {**settings["training"], "gradient_checkpointing": False}
        return _training(
            training, both, Pass(length + written, reading + writing), seen, facts.queries["validation"].count
        )
    count = facts.passages.count / int(job.wildcards.get("scatteritem", "1-of-1").rpartition("-")[2])
    searched: int = settings["beams"] if "beams" in settings else settings["queries"]
    # Keys and values of the passages of a batch, once for each of their queries.
    kept = min(EXPANDED["cpu"], count * searched * length) * model.layers * 2 * model.hidden * 4
    disk = count * (asked.mean * settings["queries"] * PACKED + facts.passages.id_characters + 8)
    return Work(count * (reading + searched * writing), model.hidden, 4 * both.weights + 2 * kept, disk, disk / PACKED)


def _late_retrieval(job: Job, settings: Config, model: Model, queries: Texts, passages: Texts, memory: float) -> Work:
    """Encode the tokens of passages, or compare those of queries with all of them."""
    length = passages.tokens(settings["max_length"])
    if job.rule == "encode_tokens":
        count = passages.count / int(job.wildcards.get("scatteritem", "1-of-1").rpartition("-")[2])
        disk = count * (length * settings["dimension"] * BYTES["fp16"] + passages.id_characters + 8)
        filled = min(count, TOKENS_ENCODED) * settings["max_length"] * 4 * (settings["dimension"] + 1)
        # Finished blocks are kept until the shard is whole.
        return Work(_texts(model, count, length).flops, model.hidden, memory + 2 * filled, disk, disk)
    query = settings["query_length"] if settings["fill_queries"] else queries.tokens(settings["query_length"])
    products = 2 * queries.count * query * passages.count * length * settings["dimension"]
    encoded = _texts(model, queries.count, query).flops
    return Work(encoded + SEARCHED * products, model.hidden, memory, 0)


def is_late(settings: Config) -> bool:
    """Tell whether a re-ranker encodes queries and passages apart."""
    return settings.get("kind") == "late_interaction"


def _read_by(settings: Config, model: Model) -> Model:
    """Take of a base model what a job has: its word vectors alone, if it pools kernels."""
    if not pools_kernels(settings):
        return model
    width = settings["dimension"] if settings["word_vectors"] == "new" else model.embedding
    return Model(width, 1, 0, model.vocabulary * width, model.vocabulary, width)


def pools_kernels(settings: Config) -> bool:
    """Tell whether a re-ranker compares word vectors."""
    return settings.get("kind") in KERNEL_POOLING


def _texts(model: Model, count: float, length: float) -> Pass:
    return Pass(count * length, model.flops(length) * count * length)


def _triple(settings: Config, model: Model, queries: Texts, passages: Texts) -> Pass:
    """Encode a query and two passages."""
    length = passages.tokens(settings.get("passage_length", LENGTH))
    tokens = queries.tokens(settings.get("query_length", LENGTH)) + 2 * length
    return Pass(tokens, model.flops(length) * tokens)


def _pairs(
    settings: Config, model: Model, queries: Texts, passages: Texts, count: float, different: tuple[float, float]
) -> Pass:
    """Score pairs of so many different queries and passages."""
    query = queries.tokens(settings.get("query_length", LENGTH))
    if pools_kernels(settings):
        passage = passages.tokens(settings["max_length"], special=0)
        return _pooled(settings, model, count, query, passage)
    if not is_late(settings):
        return _texts(
            model, count, query + passages.tokens(max(settings.get("max_length", LENGTH) - query, 1), special=1)
        )
    query = settings["query_length"] if settings["fill_queries"] else query
    one, other = (
        _texts(model, different[0], query),
        _texts(model, different[1], passages.tokens(settings["max_length"])),
    )
    # The vectors are filled up to the longest text there may be.
    products = 2 * count * settings["query_length"] * settings["max_length"] * settings["dimension"]
    return Pass(one.tokens + other.tokens, one.flops + other.flops + PRODUCT * products)


def _pooled(settings: Config, model: Model, count: float, query: float, passage: float) -> Pass:
    """Compare the words of pairs, or the n-grams that a layer for each of their lengths makes of words."""
    tokens, layers = query + passage, LONGEST_NGRAM if settings["kind"] == "conv_knrm" else 0
    layers_flops = 2 * tokens * model.hidden * settings["filters"] * layers * (layers + 1) / 2
    width = settings["filters"] if layers else model.hidden
    pooling = max(layers, 1) ** 2 * query * passage * (2 * width + POOLING)
    return Pass(count * tokens, count * (layers_flops + pooling))


def _example(settings: Config, model: Model, queries: Texts, passages: Texts) -> tuple[Pass, int]:
    """Score an example of a re-ranker's training: a pair, or a group; also how many pairs that is."""
    source, training = settings["pairs"], settings["training"]
    pairs = 1 + source["negatives"]
    own = pairs - source["random"]
    # Random negatives are the positives of the groups that follow: what is encoded together shares them.
    alone = _pairs(settings, model, queries, passages, pairs, (1, own)).tokens
    update = training["batch_size"] * training["gradient_accumulation"]
    together = max(min(training["tokens_at_once"] / alone, update), 1)
    group = _pairs(settings, model, queries, passages, pairs, (1, own + source["random"] / together))
    if RERANKING_OBJECTIVES[settings["loss"]].of_groups:
        return group, pairs
    return Pass(group.tokens / pairs, group.flops / pairs), 1


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
