"""What is known of an experiment's texts and models before it runs: counts and sizes, from files where there are any.

Files are not read whole: a count is estimated from the size of a file and its first megabyte.
"""

from __future__ import annotations

import itertools
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cort.downloads.catalog import load_catalog
from workflow.experiment.config import Config
from workflow.experiment.downloads import PREFIX, path_of

SAMPLE_BYTES = 1_000_000
SAMPLE_ROWS = 5_000
QUANTILES = 20
# English by BERT's vocabulary: 20,958 paragraphs of SQuAD have 741 characters and 152 tokens on average.
CHARACTERS_PER_TOKEN = 4.9
# What transformers takes for settings an architecture leaves out.
BERT = {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072, "max_position_embeddings": 512}
BERT_VOCABULARY = 30_522
# DistilBERT's names for the same.
OTHER_NAMES = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "intermediate_size": "hidden_dim"}


@dataclass(frozen=True)
class Texts:
    """Texts of one kind: how many, the mean length of their ids, and quantiles of their lengths in characters."""

    count: float
    id_characters: float
    characters: tuple[float, ...]
    characters_per_token: float = CHARACTERS_PER_TOKEN

    @property
    def mean(self) -> float:
        """Mean length in characters."""
        return sum(self.characters) / len(self.characters)

    def tokens(self, limit: float = float("inf"), special: int = 2) -> float:
        """Mean length in tokens, special ones included, of texts cut to `limit`."""
        lengths = [min(characters / self.characters_per_token + special, limit) for characters in self.characters]
        return sum(lengths) / len(lengths)


@dataclass(frozen=True)
class Model:
    """Size of a transformer; `shared` when all layers have the same weights, as in ALBERT."""

    hidden: int
    layers: int
    intermediate: int
    vocabulary: int
    positions: int
    embedding: int
    shared: bool

    @property
    def weights(self) -> float:
        """Number of weights, without biases and small parts."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.intermediate
        tables = (self.vocabulary + self.positions) * self.embedding
        return tables + layer * (1 if self.shared else self.layers)

    def flops(self, length: float) -> float:
        """Floating-point operations per token of one pass forward over texts of `length` tokens."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.intermediate
        return self.layers * (2 * layer + 4 * length * self.hidden)


@dataclass(frozen=True)
class Facts:
    """An experiment's passages, queries by split, and base models by name."""

    passages: Texts
    queries: Mapping[str, Texts]
    models: Mapping[str, Model]


# The default experiment before it has run: docstrings of Python 3.11 and of the locked packages.
PYDOCS = Texts(36_467, 49.6, (148, 200, 254, 321, 405, 519, 681, 935, 1385, 3620), 3.45)
PYDOCS_QUERIES = Texts(32_643, 51.2, (29, 39, 45, 51, 56, 63, 69, 78, 101, 150), 4.5)
UNKNOWN = Texts(0, 8, (0,))
# Characters of an id of MS MARCO.
PUBLIC_ID = 7


def gather(config: Config, folder: Path) -> Facts:
    """Collect the facts: from the tables of an earlier run, else from raw files, else what is known of the quickstart.

    :param config: with defaults.
    :param folder: what paths are relative to.
    """
    tables = folder / "results" / config["dataset"] / "collection"
    passages = read_table(tables / "passages.parquet") or _raw_passages(config, folder)
    if "pydocs" in config["collection"]:
        passages = replace(passages, characters_per_token=PYDOCS.characters_per_token)
    queries = {
        split: read_table(tables / f"queries.{split}.parquet") or _raw_queries(config, split, folder)
        for split in config["splits"]
    }
    models = {name: model_of(model, folder) for name, model in config["base_models"].items()}
    return Facts(passages, queries, models)


def read_table(path: Path) -> Texts | None:
    """Describe a table of the workflow (ids and texts); None if it is not there, or no whole one."""
    if not path.is_file():
        return None
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            rows = table.metadata.num_rows
            groups = [table.metadata.row_group(number).column(1) for number in range(table.num_row_groups)]
            sample = next(table.iter_batches(SAMPLE_ROWS), None)
    except (OSError, pa.ArrowException):
        return None
    if sample is None or not rows:
        return UNKNOWN
    ids, texts = (sample.column(number).to_pylist() for number in (0, 1))
    lengths = _quantiles(list(map(len, texts)))
    # The first rows need not be like the others; a text is stored with four bytes for its length.
    mean = sum(group.total_uncompressed_size for group in groups) / rows - 4
    scale = max(mean, 1) * len(lengths) / max(sum(lengths), 1)
    return Texts(rows, _mean(map(len, ids)), tuple(length * scale for length in lengths))


def read_texts(path: Path) -> Texts:
    """Estimate the texts of a raw file (.tsv, .jsonl, either with .gz); none if it cannot be read."""
    lines, share = _first_lines(path)
    pairs = [pair for pair in map(_parse, lines) if pair]
    if not pairs:
        return UNKNOWN
    lengths = [len(text) for _, text in pairs]
    return Texts(len(pairs) / share, _mean(len(name) for name, _ in pairs), _quantiles(lengths))


def read_judged(path: Path) -> float:
    """Estimate the number of different queries in a file of judgements."""
    lines, share = _first_lines(path)
    names = {line.split(maxsplit=1)[0] for line in lines if line.strip()} - {"query-id"}
    return len(names) / share


def model_of(model: Config, folder: Path) -> Model:
    """Describe a base model of the config; one from a hub is taken for a BERT-base until it is there."""
    settings = {**model.get("architecture", {}), "vocab_size": model.get("vocabulary_size", BERT_VOCABULARY)}
    if "pretrained" in model:
        settings = read_json(folder / model["pretrained"] / "config.json") or _cached_settings(model)
    return model_from(settings)


def model_from(settings: Mapping[str, Any]) -> Model:
    """Describe a model by the settings of its config.json."""
    values = {name: settings.get(name, settings.get(OTHER_NAMES.get(name, ""), value)) for name, value in BERT.items()}
    hidden = int(values["hidden_size"])
    return Model(
        hidden,
        int(values["num_hidden_layers"]),
        int(values["intermediate_size"]),
        int(settings.get("vocab_size", BERT_VOCABULARY)),
        int(values["max_position_embeddings"]),
        int(settings.get("embedding_size", hidden)),
        settings.get("model_type") == "albert",
    )


def _cached_settings(model: Config) -> dict[str, Any]:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model["pretrained"], "config.json", revision=model.get("revision"))
    except HFValidationError:
        return {}
    return read_json(Path(found)) if isinstance(found, str) else {}


def read_json(path: Path) -> dict[str, Any]:
    """Read an object, empty if there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _raw_passages(config: Config, folder: Path) -> Texts:
    if "pydocs" in config["collection"]:
        return PYDOCS
    return _read_raw(config["collection"]["passages"], config, folder)


def _raw_queries(config: Config, split: str, folder: Path) -> Texts:
    settings = config["splits"][split]
    if "hold_out" in settings:
        return replace(_raw_queries(config, "train", folder), count=settings["hold_out"])
    if "pydocs" in config["collection"]:
        drawn = config["collection"]["pydocs"].get(f"{split}_queries")
        return replace(PYDOCS_QUERIES, count=drawn) if drawn else PYDOCS_QUERIES
    texts = _read_raw(settings["queries"], config, folder)
    count = texts.count
    qrels = folder / path_of(settings.get("qrels", ""), config["dataset"])
    if settings["unjudged_queries"] == "drop" and qrels.is_file():
        count = min(count, read_judged(qrels))
    return replace(texts, count=min(count, settings.get("sample", count)))


def _read_raw(name: str, config: Config, folder: Path) -> Texts:
    """Describe a raw file; a public one that is not there yet, by the catalogue."""
    path = folder / path_of(name, config["dataset"])
    if path.exists() or not name.startswith(PREFIX):
        return read_texts(path)
    file = load_catalog().find(name.removeprefix(PREFIX))
    characters = max(file.about / file.lines - PUBLIC_ID - 2, 1) if file.lines else 0
    return Texts(file.lines or 0, PUBLIC_ID, (characters,))


def _first_lines(path: Path) -> tuple[list[str], float]:
    """Whole lines at the beginning of a file, and their share of it."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(SAMPLE_BYTES)
        text = head
        if path.suffix == ".gz":
            text = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(head)
    except (OSError, zlib.error):
        return [], 1.0
    share = len(head) / max(size, 1)
    lines = text.decode("utf-8", "replace").split("\n")
    if share < 1 and len(lines) > 1:
        # The last line is cut.
        return lines[:-1], share
    return [line for line in lines if line], share


def _parse(line: str) -> tuple[str, str] | None:
    if line.startswith("{"):
        try:
            record = json.loads(line)
        except ValueError:
            return None
        return str(record.get("_id", "")), " ".join(filter(None, [record.get("title", ""), record.get("text", "")]))
    name, tab, text = line.partition("\t")
    return (name, text) if tab else None


def _mean(values: Iterator[int]) -> float:
    found = list(values)
    return sum(found) / max(len(found), 1)


def _quantiles(lengths: list[int]) -> tuple[float, ...]:
    """Means of equal parts of the sorted lengths, so that their mean is that of all."""
    ordered, parts = sorted(lengths), min(QUANTILES, len(lengths))
    cuts = [len(ordered) * part // parts for part in range(parts + 1)]
    return tuple(sum(ordered[low:high]) / (high - low) for low, high in itertools.pairwise(cuts))
