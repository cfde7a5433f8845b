"""What is known of texts and models before anything runs: by tables, the catalogue, and a list of models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from cort.config import paths
from cort.config.collection import HeldOut
from cort.config.downloads import PREFIX
from cort.config.experiment import Experiment
from cort.config.fields import one_or_more
from cort.config.models import Architecture, BaseModel
from cort.downloads.catalog import load_catalog

#: English in BERT's vocabulary: 20,958 paragraphs of SQuAD have 741 characters and 151.7 tokens
CHARACTERS_PER_TOKEN = 4.9
#: characters of an id with its tab and the end of the line, in public files
ID = 9
#: tokens that models read at most, unless they say otherwise
LENGTH = 512


class Size(NamedTuple):
    """Size of a transformer: width and number of layers, width between them, words and width of their vectors."""

    hidden: int
    layers: int
    between: int
    vocabulary: int
    embedding: int
    shared: bool = False

    @property
    def weights(self) -> int:
        """Number of weights, without biases and norms; ALBERT has those of one layer."""
        layer = 4 * self.hidden**2 + 2 * self.hidden * self.between
        return (self.vocabulary + LENGTH) * self.embedding + layer * (1 if self.shared else self.layers)

    def operations(self, count: float, length: float) -> float:
        """Count the operations of a pass over texts: 2 per weight and token, and attention."""
        layer = 2 * (4 * self.hidden**2 + 2 * self.hidden * self.between) + 4 * length * self.hidden
        return count * length * self.layers * layer


BERT = Size(768, 12, 3072, 30_522, 768)
LARGE = Size(1024, 24, 4096, 30_522, 1024)
#: models of the hub that shipped experiments name
KNOWN = {
    "albert/albert-base-v2": Size(768, 12, 3072, 30_000, 128, shared=True),
    "google-bert/bert-base-uncased": BERT,
    "google-bert/bert-large-uncased": LARGE,
    "google/electra-large-discriminator": LARGE,
    "macavaney/deepct": BERT,
    "sentence-transformers/all-MiniLM-L6-v2": Size(384, 6, 1536, 30_522, 384),
}


class Texts(NamedTuple):
    """How many texts there are, and their mean length in characters."""

    number: float
    characters: float

    def tokens(self, limit: float | None, special: int = 2) -> float:
        """Mean length in tokens, at most `limit`."""
        return min(self.characters / CHARACTERS_PER_TOKEN + special, limit or LENGTH)


class Facts:
    """What is known of texts and models of an experiment."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self._queries: dict[str, Texts | None] = {}

    @cached_property
    def passages(self) -> Texts | None:
        """The passages: as they are, or as the catalogue says."""
        named = getattr(self.experiment.collection, "passages", None)
        table = _table(self.experiment.at(paths.PASSAGES))
        return table or (public_texts(one_or_more(named)) if isinstance(named, str | tuple | list) else None)

    def queries(self, split: str) -> Texts | None:
        """Return the queries of a split, of which most are judged, if others are dropped."""
        if split not in self._queries:
            self._queries[split] = self._find_queries(split)
        return self._queries[split]

    def _find_queries(self, split: str) -> Texts | None:
        settings, table = self.experiment.splits[split], _table(self.experiment.at(paths.QUERIES, split=split))
        if table is not None:
            return table
        if isinstance(settings, HeldOut):
            train = self.queries("train")
            return train and train._replace(number=min(settings.hold_out, train.number))
        texts, judged = public_texts(settings.files("queries")), public_texts(settings.files("qrels"))
        if texts is None:
            return None
        most = [texts.number, getattr(settings, "sample", None) or texts.number]
        if judged and settings.unjudged_queries == "drop":
            most.append(judged.number)
        return texts._replace(number=min(most))

    def size(self, base_model: str) -> Size | None:
        """Return the size of a base model, if it is known without asking for it."""
        return size_of(self.experiment.base_models[base_model])


def stored(table: str) -> tuple[int, int] | None:
    """Count the texts of a table and their bytes, if it is there and whole."""
    if (found := footer(table)) is None:
        return None
    groups = [found.row_group(group) for group in range(found.num_row_groups)]
    columns = [group.column(place) for group in groups for place in range(group.num_columns)]
    return found.num_rows, sum(one.total_uncompressed_size for one in columns if one.path_in_schema == "text")


def footer(table: str) -> Any:
    """Read the footer of a table; None if it is not there or not whole."""
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_metadata(table)
    except (OSError, ValueError):
        return None


def _table(path: str) -> Texts | None:
    found = stored(path)
    return Texts(found[0], found[1] / max(found[0], 1)) if found else None


def public_texts(names: Iterable[str]) -> Texts | None:
    """Add up public files, as the catalogue has them; None if there is none, or another one."""
    catalog, named = load_catalog().files, [*names]
    files = [catalog[name.removeprefix(PREFIX)] for name in named if name.removeprefix(PREFIX) in catalog]
    counts = [file.lines or file.records for file in files]
    if not files or len(files) < len(named) or not all(counts):
        return None
    count = sum(filter(None, counts))
    return Texts(count, max(sum(file.about for file in files) / count - ID, 1))


def size_of(model: BaseModel) -> Size | None:
    """Return the size of a base model, by its own files, or the list of known ones."""
    if isinstance(model, Architecture):
        return _described({"vocab_size": model.vocabulary_size, **model.architecture})
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = Path(model.pretrained, "config.json")
        if not path.is_file():
            path = Path(str(try_to_load_from_cache(model.pretrained, "config.json", revision=model.revision)))
        return _described(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, HFValidationError):
        return KNOWN.get(model.pretrained)


def _described(settings: Mapping[str, object]) -> Size | None:
    """Read a size from the settings of a transformer, in the names of BERT and its relatives."""
    try:
        hidden, layers, between, vocabulary = (
            int(str(settings[name])) for name in ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
        )
    except (KeyError, ValueError):
        return None
    embedding = int(str(settings.get("embedding_size", hidden)))
    return Size(hidden, layers, between, vocabulary, embedding, settings.get("model_type") == "albert")
