"""How much work a job is, from counts alone: pure functions, one for each stage, their constants in costs.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from workflow.planning.facts import UNKNOWN, Model, Texts, model_from

CONSTANTS = Path(__file__).with_name("costs.yaml")
MB = 1e6
# Rows that a stage holds at a time, as cort/ has them: texts to tokenize, a row group of a table, tokens to encode.
TOKENIZED, ROW_GROUP, TOKEN_BUDGET = 8_192, 65_536, 1_024
# Java with little to do does not use its heap.
SMALL_HEAP = 1_000


@dataclass(frozen=True)
class Quantities:
    """What a job works on. Counts that mean nothing to its rule are 0.

    `texts` are those a stage reads, `passages` and `queries` the two sides of a run; `depth` is the number of results
    per query, `candidates` of those that are scored, `files` the number of runs read, `searches` how often each query
    is searched; `sampled` queries are drawn, all if 0. `examples` and `validation` are triples or pairs, in all epochs;
    lengths are in tokens, and that of a pair is `passage_length`. A public file has `size` bytes; `fetched` of it, or
    of its archive, come over the network.
    """

    texts: Texts = UNKNOWN
    passages: Texts = UNKNOWN
    queries: Texts = UNKNOWN
    depth: float = 0
    candidates: float = 0
    files: int = 1
    tag: str = ""
    searches: float = 1
    examples: float = 0
    validation: float = 0
    validate_every: float = 1
    batch: float = 1
    gradient_accumulation: float = 1
    tokens_at_once: float = 0
    gradient_checkpointing: bool = False
    model: Model = field(default_factory=lambda: model_from({}))
    query_length: float = 0
    passage_length: float = 0
    precision: str = "fp32"
    dimension: float = 0
    value_bytes: float = 4
    edges: float = 0
    M: float = 0
    ef_construction: float = 0
    sampled: float = 0
    shards: int = 1
    heap: float = 0
    size: float = 0
    fetched: float = 0

    @property
    def results(self) -> float:
        """Lines of a run; no query has more results than there are passages."""
        return self.queries.count * min(self.depth, self.passages.count)

    @property
    def run_bytes(self) -> float:
        """Size of a run."""
        names = self.queries.id_characters + self.passages.id_characters + len(self.tag)
        return self.results * (names + float(constants()["disk"]["run_line"]))


@dataclass(frozen=True)
class Work:
    """What a job costs apart from its rule's constants: units of work, products and passes of a transformer, bytes.

    `checkpoints` are those of a training, written if it takes long enough.
    """

    units: float = 0
    flops: float = 0
    forward: float = 0
    backward: float = 0
    updates: float = 0
    memory: float = 0
    disk: float = 0
    temporary: float = 0
    checkpoints: float = 0


@cache
def constants() -> Mapping[str, Any]:
    """Read costs.yaml."""
    found: Mapping[str, Any] = yaml.safe_load(CONSTANTS.read_text(encoding="utf-8"))
    return found


def _pydocs(q: Quantities) -> Work:
    # The raw files: passages, and queries and judgements of every split.
    texts = q.passages.count * (q.passages.mean + q.passages.id_characters)
    return Work(units=1, disk=1.06 * texts + 230 * q.queries.count)


def _collection(q: Quantities) -> Work:
    held = min(q.passages.count, ROW_GROUP) * q.passages.mean * 5.5
    disk = constants()["disk"]["passages"] * _characters(q.passages)
    return Work(units=_characters(q.passages), memory=held + 130 * q.passages.count, disk=disk)


def _split(q: Quantities) -> Work:
    return Work(units=q.queries.count, memory=3_000 * q.queries.count, disk=65 * q.queries.count)


def _base_model(q: Quantities) -> Work:
    weights = 4 * q.model.weights
    return Work(units=_characters(q.passages), memory=2.5 * weights, disk=weights + MB / 2)


def _import_encoder(q: Quantities) -> Work:
    weights = 4 * q.model.weights
    return Work(units=weights, memory=2.5 * weights, disk=2 * (weights + MB / 2))


def _export_model(q: Quantities) -> Work:
    weights = 4 * q.model.weights
    return Work(units=weights, memory=weights, disk=weights + MB)


def _tokenize(q: Quantities) -> Work:
    tokens = q.texts.tokens(special=0)
    held = min(q.texts.count, TOKENIZED) * tokens * 250
    return Work(_characters(q.texts), memory=held, disk=q.texts.count * (4 * tokens + q.texts.id_characters + 12))


def _bm25_index(q: Quantities) -> Work:
    characters = _characters(q.passages)
    return Work(characters, memory=_heap(q, 4 * characters), disk=constants()["disk"]["index"] * characters)


def _bm25(q: Quantities) -> Work:
    # Finding the passages costs more in a large collection.
    units = q.searches * (q.results + q.queries.count * q.passages.count / 3_000)
    return Work(units, memory=_heap(q, 1_000 * min(q.results, MB)), disk=q.run_bytes)


def _bm25_tune(q: Quantities) -> Work:
    runs = q.searches * min(500_000, q.results) * 40
    return Work(**{**vars(_bm25(q)), "disk": 0, "temporary": runs})


def _examples_of(bytes_each: float) -> Callable[[Quantities], Work]:
    return lambda q: Work(q.results, memory=_reading(q), disk=bytes_each * q.examples)


def _training(tokens: float, length: float, q: Quantities, validated: float) -> Work:
    """`tokens` of one example in texts of `length`; both counted with special tokens."""
    updates = q.examples / max(q.batch * q.gradient_accumulation, 1)
    width = q.model.layers * q.model.hidden
    seen, checked = q.examples * tokens, validated * (updates // max(q.validate_every, 1) + 1) * tokens
    activations = constants()["memory"]["activations"] * _tokens_in_flight(q, tokens) * width
    return Work(
        flops=q.model.flops(length) * (3 * seen + checked),
        backward=seen * width,
        forward=checked * width,
        updates=updates * q.model.weights,
        memory=activations + constants()["memory"]["per_weight"] * q.model.weights,
        # Best and last.
        disk=2 * (4 * q.model.weights + MB / 2),
        checkpoints=constants()["checkpoints"]["kept"] * constants()["checkpoints"]["per_weight"] * q.model.weights,
    )


def _tokens_in_flight(q: Quantities, tokens: float) -> float:
    """Tokens whose activations wait for their gradients: mini-batches of an update, as many as are encoded together."""
    if q.gradient_checkpointing:
        return min(q.tokens_at_once, q.batch * tokens)
    update = min(q.batch * q.gradient_accumulation, max(q.examples, 1)) * tokens
    return max(min(q.tokens_at_once, update), min(q.batch, max(q.examples, 1)) * tokens)


def _train(q: Quantities) -> Work:
    query, passage = q.queries.tokens(q.query_length), q.passages.tokens(q.passage_length)
    return _training(query + 2 * passage, passage, q, q.validation)


def _train_reranker(q: Quantities) -> Work:
    length = _pair_length(q)
    return _training(length, length, q, q.validation)


def _encode(q: Quantities) -> Work:
    length = q.texts.tokens(q.passage_length)
    work = _inference(q.texts.count * length / q.shards, length, q)
    kept = q.texts.count * (q.dimension * q.value_bytes + q.texts.id_characters + 8)
    # Finished blocks are kept until the shard is whole.
    return Work(**{**vars(work), "disk": kept / q.shards, "temporary": kept / q.shards})


def _score(q: Quantities) -> Work:
    # Candidates of one run are partly those of another.
    pairs = q.queries.count * min(q.candidates, q.passages.count) * (1 + 0.5 * (q.files - 1))
    work = _inference(pairs * _pair_length(q), _pair_length(q), q)
    runs = constants()["memory"]["per_run_byte"] * q.run_bytes * q.files
    return Work(**{**vars(work), "memory": work.memory + runs, "disk": 18 * pairs, "temporary": 40 * pairs})


def _score_triples(q: Quantities) -> Work:
    # A query's positive is the same in every epoch, mostly.
    pairs = q.examples + q.queries.count
    work = _inference(pairs * _pair_length(q), _pair_length(q), q)
    return Work(**{**vars(work), "memory": work.memory + 150 * pairs, "disk": 18 * pairs, "temporary": 40 * pairs})


def _inference(tokens: float, length: float, q: Quantities) -> Work:
    width = q.model.layers * q.model.hidden
    held = 4 * q.model.weights + constants()["memory"]["activations"] * TOKEN_BUDGET * q.model.hidden
    return Work(flops=q.model.flops(length) * tokens, forward=tokens * width, memory=held)


def _onng(q: Quantities) -> Work:
    vector, sizes = 4 * q.dimension + q.passages.id_characters, constants()["disk"]
    units = q.passages.count**1.45 * (q.edges / 50) ** 2.5 * q.dimension / 128
    building = q.passages.count * (vector + sizes["graph_building"] * q.edges)
    whole = q.passages.count * (vector + sizes["graph"])
    return Work(units, memory=building + whole, disk=whole, temporary=building)


def _hnsw(q: Quantities) -> Work:
    # Both layers of links and a label, beside the vector.
    index = q.passages.count * (4 * q.dimension + q.passages.id_characters + 8 * q.M + 16)
    units = q.passages.count**1.1 * q.M / 16 * q.ef_construction / 200 * q.dimension / 128
    return Work(units, memory=index, disk=index)


def _audit(q: Quantities) -> Work:
    # Vectors in memory, and the larger of the indexes.
    asked = min(q.queries.count, q.sampled or q.queries.count)
    vector = 4 * q.dimension + q.passages.id_characters
    held = q.passages.count * (2 * vector + constants()["disk"]["graph"])
    results = asked * min(q.depth, q.passages.count)
    pairs = asked * q.passages.count
    return Work(results * q.searches + pairs / 120, memory=held, disk=20_000)


def _retrieve(q: Quantities) -> Work:
    pairs = q.queries.count * q.passages.count
    # A copy of all vectors, and scores held at once.
    held = q.passages.count * (4 * q.dimension + 2 * q.passages.id_characters + 16) + 128 * MB
    flops = 2 * q.dimension * pairs
    return Work(
        q.results + pairs / 120, flops=flops, memory=held + 48 * min(q.results, 512 * q.depth), disk=q.run_bytes
    )


def _retrieve_onng(q: Quantities) -> Work:
    index = q.passages.count * (4 * q.dimension + constants()["disk"]["graph"] + q.passages.id_characters)
    return Work(q.results, memory=1.1 * index + _reading(q), disk=q.run_bytes)


def _latency(q: Quantities) -> Work:
    # Each system is searched twice with single queries and twice in batches; vectors, graphs and the heap of Java.
    searches = 4 * q.searches * q.queries.count
    return Work(searches * (1 + q.passages.count / 1e6), memory=q.passages.count * 1_000 + 1_000 * MB, disk=30_000)


def _run(q: Quantities) -> Work:
    return Work(q.results, memory=_reading(q), disk=q.run_bytes)


def _reader(bytes_each: float) -> Callable[[Quantities], Work]:
    """Read runs and write little, so many bytes per query."""
    return lambda q: Work(q.results, memory=_reading(q), disk=bytes_each * q.queries.count + 3_000)


def _reading(q: Quantities) -> float:
    return float(constants()["memory"]["per_run_byte"] * q.run_bytes)


def _characters(texts: Texts) -> float:
    return texts.count * texts.mean


def _pair_length(q: Quantities) -> float:
    query = q.queries.tokens(q.query_length)
    return query + q.passages.tokens(max(q.passage_length - query, 1), special=1)


def _heap(q: Quantities, wanted: float) -> float:
    limit = (q.heap or SMALL_HEAP) + float(constants()["memory"]["heap"])
    return min(wanted, limit * MB)


WORK: Mapping[str, Callable[[Quantities], Work]] = {
    "download": lambda q: Work(q.fetched, disk=q.size),
    # Unpacking is ten times as fast as fetching.
    "extract": lambda q: Work(q.fetched + q.size / 10, disk=q.size),
    "pydocs": _pydocs,
    "provenance": lambda q: Work(_characters(q.passages), disk=20_000),
    "collection": _collection,
    "split": _split,
    "base_model": _base_model,
    "tokenize": _tokenize,
    "bm25_index": _bm25_index,
    "bm25": _bm25,
    "bm25_tune": _bm25_tune,
    "triples": _examples_of(52),
    "pairs": _examples_of(28),
    "train": _train,
    "train_reranker": _train_reranker,
    "import_encoder": _import_encoder,
    "encode": _encode,
    "encode_queries": _encode,
    "score": _score,
    "score_triples": _score_triples,
    "onng": _onng,
    "hnsw": _hnsw,
    "audit": _audit,
    "retrieve": _retrieve,
    "retrieve_onng": _retrieve_onng,
    "retrieve_hnsw": _retrieve_onng,
    "interleave": _run,
    "import_run": _run,
    "rerank": _run,
    "evaluate": _reader(35),
    "consistency": _reader(0),
    "submission": _run,
    "export_model": _export_model,
    # Random weights and signs for every query, thousands of times.
    "compare": lambda q: Work(q.queries.count, disk=20_000),
    "depths": _reader(0),
    "disagreements": _reader(0),
    "reproduction": lambda _: Work(units=1, disk=500_000),
    "manifest": lambda _: Work(units=1, disk=5_000),
    "latency": _latency,
    "report": lambda _: Work(units=1, disk=300_000),
}
