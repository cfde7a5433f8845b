"""What is known of an experiment's texts and models before it runs, from files where there are any.

Files are not read whole: a count is estimated from the size of a file and its first megabyte.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cort.downloads.catalog import load_catalog
from cort.models.settings import ref_of
from workflow import paths
from workflow.experiment.config import Config, one_or_more
from workflow.experiment.downloads import PREFIX, path_of
from workflow.experiment.models import LEARNERS, triples_file

SAMPLE_BYTES = 1_000_000
# Of what is packed, which may expand to a thousand times its size.
MOST_BYTES = 16 * SAMPLE_BYTES
# English by BERT's vocabulary: 20,958 paragraphs of SQuAD have 741 characters and 152 tokens on average.
CHARACTERS_PER_TOKEN = 4.9
# Sizes in a config.json: what transformers takes for those left out, and the names of DistilBERT and T5.
SIZES = {
    ("hidden_size", "dim", "d_model"): 768,
    ("num_hidden_layers", "n_layers", "num_layers"): 12,
    ("intermediate_size", "hidden_dim", "d_ff"): 3072,
    ("max_position_embeddings",): 512,
    ("vocab_size",): 30_522,
}


@dataclass(frozen=True)
class Texts:
    """Texts of one kind: how many, and the mean lengths in characters of them and of their ids."""

    count: float
    mean: float
    id_characters: float

    def tokens(self, limit: float, special: int = 2) -> float:
        """Mean length in tokens, special ones included, of texts cut to `limit`."""
        return min(self.mean / CHARACTERS_PER_TOKEN + special, limit)


@dataclass(frozen=True)
class Model:
    """Size of a transformer: its width, its layers, the weights of one and of all; its words and their own width."""

    hidden: int
    layers: int
    layer_weights: int
    weights: int
    vocabulary: int
    embedding: int

    def flops(self, length: float) -> float:
        """Floating-point operations per token of one pass forward over texts of `length` tokens."""
        return self.layers * (2 * self.layer_weights + 4 * length * self.hidden)


@dataclass(frozen=True)
class Facts:
    """An experiment's passages, queries by split, base models by name, and numbers of triples in the files it names.

    `judgements` has how many a split has, where it is not one for each query.
    """

    passages: Texts
    queries: Mapping[str, Texts]
    models: Mapping[str, Model]
    triples: Mapping[str, float] = field(default_factory=dict)
    judgements: Mapping[str, float] = field(default_factory=dict)

    def judged(self, split: str) -> float:
        """Count the pairs of a query and a passage that are judged, or else the queries."""
        return self.judgements.get(split, self.queries[split].count)

    def taken(self, source: Config) -> float:
        """Count the triples of a file that a model is trained on."""
        return min((self.triples[source["file"]], *(source[key] or math.inf for key in ("limit", "sample"))))


# Models of the hub whose config.json is known without asking for it.
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
KNOWN: Mapping[str, Mapping[str, Any]] = {
    "albert/albert-base-v2": {"model_type": "albert", "embedding_size": 128, "vocab_size": 30_000},
    "google-bert/bert-large-uncased": LARGE,
    "google/electra-large-discriminator": LARGE,
}


# The default experiment before it has run: docstrings of Python 3.11 and of the locked packages.
PYDOCS = Texts(36_467, 847, 49.6)
PYDOCS_QUERIES = Texts(32_643, 68, 51.2)
UNKNOWN = Texts(0, 0, 8)
# Characters of an id of MS MARCO.
PUBLIC_ID = 7


def gather(config: Config, folder: Path) -> Facts:
    """Collect the facts: from tables of an earlier run, else from raw files, else what is known of the quickstart."""
    passages = read_table(folder / paths.at(paths.PASSAGES, config))
    if passages is None:
        collection = config["collection"]
        passages = PYDOCS if "pydocs" in collection else _read_raw(collection["passages"], config, folder)
    queries = {
        split: read_table(folder / paths.at(paths.QUERIES, config, split=split)) or _raw_queries(config, split, folder)
        for split in config["splits"]
    }
    models = {name: _model_of(model, folder) for name, model in config["base_models"].items()}
    files = (triples_file(section, model) for section in LEARNERS for model in config[section].values())
    triples = {file: _read_raw(file, config, folder).count for file in files if file}
    splits = {name: _judgements(settings, config, folder) for name, settings in config["splits"].items()}
    judgements = {name: count for name, count in splits.items() if count < math.inf}
    return Facts(passages, queries, models, triples, judgements)


def read_table(path: Path) -> Texts | None:
    """Describe a table of the workflow (ids and texts); None if it is not there, or no whole one."""
    try:
        found = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return None
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    bytes_of = [sum(group.column(number).total_uncompressed_size for group in groups) for number in (1, 0)]
    # A text is stored with four bytes for its length.
    return Texts(found.num_rows, *(max(size / max(found.num_rows, 1) - 4, 1) for size in bytes_of))


def read_texts(path: Path) -> Texts:
    """Estimate the texts of a raw file (.tsv, .jsonl, either with .gz) from its lines; none if it cannot be read."""
    if not path.is_file():
        # A pipe would be waited for, without end.
        return UNKNOWN
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(SAMPLE_BYTES)
        text = (
            zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head, MOST_BYTES) if path.suffix == ".gz" else head
        )
    except (OSError, zlib.error):
        return UNKNOWN
    lines = text.decode("utf-8", "replace").splitlines()
    # The last line of a part is cut.
    lines = lines[:-1] if len(head) < size and len(lines) > 1 else lines
    if not lines:
        return UNKNOWN
    parts = (line.partition("\t") for line in lines)
    names = fmean(len(name) if tab else UNKNOWN.id_characters for name, tab, _ in parts)
    return Texts(len(lines) * size / len(head), max(fmean(map(len, lines)) - names - 1, 1), names)


def _raw_queries(config: Config, split: str, folder: Path) -> Texts:
    settings, pydocs = config["splits"][split], config["collection"].get("pydocs")
    if "hold_out" in settings:
        return replace(_raw_queries(config, "train", folder), count=settings["hold_out"])
    if pydocs is not None:
        return replace(PYDOCS_QUERIES, count=pydocs.get(f"{split}_queries", PYDOCS_QUERIES.count))
    texts = _all_of([_read_raw(name, config, folder) for name in one_or_more(settings["queries"])])
    # Queries without any judgement are dropped, mostly.
    judged = math.inf if settings.get("unjudged_queries") == "keep" else _judgements(settings, config, folder)
    most = min(settings.get("sample", math.inf), judged)
    return replace(texts, count=min(texts.count, most))


def _judgements(settings: Config, config: Config, folder: Path) -> float:
    """Count the judgements of a split; infinite if unknown."""
    if "qrels" not in settings:
        return math.inf
    return sum(_read_raw(name, config, folder).count or math.inf for name in one_or_more(settings["qrels"]))


def _all_of(files: Sequence[Texts]) -> Texts:
    """Describe the texts of several files, of which the first is like the others."""
    return replace(files[0], count=sum(file.count for file in files))


def _read_raw(name: str, config: Config, folder: Path) -> Texts:
    """Describe a raw file; a public one that is not there yet, by the catalogue."""
    path = folder / path_of(name, config["dataset"])
    public = load_catalog().find(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
    # Texts in other forms than lines are not counted.
    if public is None or (path.exists() and not public.records):
        return read_texts(path)
    count = public.records or public.lines or 0
    return Texts(count, max(public.about / count - PUBLIC_ID - 2, 1) if count else 0, PUBLIC_ID)


def model_from(settings: Mapping[str, Any]) -> Model:
    """Describe a model by the settings of its config.json, without biases and small parts."""
    hidden, layers, intermediate, positions, vocabulary = (
        int(next((settings[name] for name in names if name in settings), default)) for names, default in SIZES.items()
    )
    layer = 4 * hidden**2 + 2 * hidden * intermediate
    # All layers of an ALBERT have the same weights.
    different = 1 if settings.get("model_type") == "albert" else layers
    embedding = int(settings.get("embedding_size", hidden))
    tables = (vocabulary + positions) * embedding
    return Model(hidden, layers, layer, tables + layer * different, vocabulary, embedding)


def _model_of(model: Config, folder: Path) -> Model:
    """Describe a base model of the config; one from a hub is what is known of it, or a BERT-base, until it is there."""
    if "architecture" in model:
        return model_from({**model["architecture"], "vocab_size": model["vocabulary_size"]})
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    path: Any = folder / model["pretrained"] / "config.json"
    try:
        if not path.is_file():
            ref = ref_of(model.get("revision", "")) or None
            path = try_to_load_from_cache(model["pretrained"], "config.json", revision=ref)
        return model_from(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, HFValidationError):
        return model_from(KNOWN.get(model["pretrained"], {}))
