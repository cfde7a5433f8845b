"""Estimates of file sizes in MB from raw files and the catalogue, before anything has run.

The rules use them as `disk_mb`, for `make plan`; no result depends on them. Each function takes the config and the
wildcards of a job.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from cort.downloads.catalog import load_catalog
from cort.settings.config import TRAINING_SPLITS, Config, files_of, files_of_split, one_or_more, source_of
from workflow.params import Wildcards

MB = 1e6
SAMPLE_BYTES = 1_000_000
# Approximate compression of text by gzip.
UNPACKED = 3
# Bytes of a vector's id, of a line of a run, of randomly initialised weights, and of weights from a hub (BERT-base).
VECTOR, LINE, SMALL, MODEL = 24, 60, 10e6, 440e6
BYTES = {"fp32": 4, "fp16": 2}
# Tokens with a weight per passage, as of SPLADE.
TERMS = 200
# Characters of a number.
DIGITS = 13
# Characters per token.
CHARACTERS = 5


class Lines(NamedTuple):
    """Number of lines of a file of texts, and its bytes."""

    number: float
    size: float


# The quickstart's passages, and a collection whose size is not known before it is read.
PYDOCS, UNKNOWN = Lines(36_600, 12e6), Lines(1_000_000, 500e6)


def download(_: Config, wildcards: Wildcards) -> float:
    """Size of a public file, including the archive that contains it."""
    catalog, name = load_catalog(), f"{wildcards.source}/{wildcards.file}"
    source, file = catalog.source_of(name), catalog.find(name)
    return (source.about + (file.about if source.name != name else 0)) / MB


def text(config: Config, _: Wildcards) -> float:
    """Size of the passages' text."""
    return collection(config).size / MB


def vectors(config: Config, wildcards: Wildcards) -> float:
    """Size of a shard of an encoder's vectors."""
    encoder = config["encoders"][wildcards.encoder]
    values = encoder.get("dimension", 768) * BYTES[encoder["storage"]]
    return float(collection(config).number * (values + VECTOR) / MB / shards(wildcards))


def impacts(config: Config, wildcards: Wildcards) -> float:
    """Size of a shard of a sparse encoder's impacts."""
    return float(collection(config).number * TERMS * 8 / MB / shards(wildcards))


def token_vectors(config: Config, wildcards: Wildcards) -> float:
    """Size of a shard of token vectors."""
    reranker, passages = config["rerankers"][wildcards.reranker], collection(config)
    tokens = min(passages.size / CHARACTERS, passages.number * reranker.get("max_length", 512))
    return float(tokens * reranker.get("dimension", 128) * BYTES["fp16"] / MB / shards(wildcards))


def run(config: Config, wildcards: Wildcards) -> float:
    """Size of a system's run of a split."""
    depth = config["training_depth" if wildcards.split in TRAINING_SPLITS else "depth"]
    return float(queries(config, wildcards.split) * min(depth, collection(config).number) * LINE / MB)


def deployment(config: Config, _: Wildcards) -> float:
    """Size of the passages and vectors of 768 numbers in text, at most."""
    passages = collection(config)
    return (passages.size + passages.number * 768 * DIGITS) / MB


def training(config: Config, wildcards: Wildcards) -> float:
    """Size of training: three checkpoints (weights, best weights and two moments of AdamW), and two models."""
    section = "encoders" if hasattr(wildcards, "encoder") else "rerankers"
    base_model = config["base_models"][config[section][wildcards[section[:-1]]]["base_model"]]
    if "pretrained" not in base_model:
        return 14 * SMALL / MB
    sizes = [file.stat().st_size for file in Path(base_model["pretrained"]).glob("*.safetensors")]
    return 14 * (sum(sizes) or MODEL) / MB


def shards(wildcards: Wildcards) -> int:
    """Return the number of shards of which a job makes one; 1 without shards."""
    return int(wildcards.scatteritem.rpartition("-")[2]) if hasattr(wildcards, "scatteritem") else 1


def collection(config: Config) -> Lines:
    """Estimate the passages."""
    source, own = source_of(config), config["collection"]
    if source == "folder":
        size = sum(path.stat().st_size for path in Path(own["folder"]).rglob("*") if path.is_file())
        return Lines(size / CHARACTERS / (own["passages"]["words"] / 2), size)
    if source in ("irds", "hf"):
        return UNKNOWN
    names = files_of(own.get(source or "passages", []))
    parts = [lines(name) for name in names]
    return Lines(*map(sum, zip(*parts, strict=True))) if parts else PYDOCS


def queries(config: Config, split: str) -> float:
    """Upper bound of the queries of a split."""
    own, files = config["splits"][split], files_of_split(config, split)
    pydocs = config["collection"].get("pydocs", {})
    most = pydocs.get(f"{split}_queries", PYDOCS.number)
    count = sum(lines(file).number for file in one_or_more(files["queries"])) if "queries" in files else most
    return float(min(count, own.get("hold_out") or own.get("sample") or count))


@cache
def lines(path: str) -> Lines:
    """Estimate a file from its size and first megabyte; a public file that does not exist yet, from the catalogue."""
    file, packed = Path(path), UNPACKED if path.endswith(".gz") else 1
    # Reading a pipe would wait forever.
    if file.is_file() and file.stat().st_size:
        with file.open("rb") as opened:
            head = opened.read(SAMPLE_BYTES)
        size, each = file.stat().st_size * packed, len(head) / max(head.count(b"\n"), 1) * packed
        return Lines(size / each, size)
    public = load_catalog().files.get("/".join(file.parts[-2:]))
    return Lines(public.records or public.lines or 0, public.about) if public else Lines(0, 0)
