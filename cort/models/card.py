"""The card of a saved model, ``README.md`` in its folder: how to use it, how it was made, and checksums of its files.

The workflow takes this file for the whole folder: it changes whenever a weight does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from cort import __version__
from cort.runtime.checksums import checksum

log = logging.getLogger(__name__)

# As in `cort.config.paths`, which imports what does not belong to the program of a training.
CARD = "README.md"
PACKAGES = ("torch", "transformers", "sentence-transformers")
# Class of sentence-transformers -> task and tags on the hub.
USES = {
    "SentenceTransformer": ("sentence-similarity", ["sentence-transformers", "feature-extraction", "dense"]),
    "CrossEncoder": ("text-ranking", ["sentence-transformers", "cross-encoder", "reranker"]),
    "SparseEncoder": ("feature-extraction", ["sentence-transformers", "sparse-encoder", "sparse", "splade"]),
    "MultiVectorEncoder": ("sentence-similarity", ["sentence-transformers", "multi-vector", "ColBERT"]),
}
# How encoders, and cross-encoders, are used.
ENCODE = """\
queries = model.encode_query(["what is a dense ranker"])
passages = model.encode_document(["A dense ranker compares vectors.", "Bread is baked."])
print(model.similarity(queries, passages))"""
PREDICT = """\
query = "what is a dense ranker"
print(model.predict([(query, "A dense ranker compares vectors."), (query, "Bread is baked.")]))"""


class Origin(NamedTuple):
    """The model that another one began as, by its name on a hub, and its licence."""

    base_model: str | None = None
    license: str | None = None

    @classmethod
    def of(cls, folder: Path, name: str | None = None) -> Origin:
        """Read the card in a model's folder.

        :param name: of the model on a hub; by default the base model that the card names.
        """
        from huggingface_hub import metadata_load

        card = folder / CARD
        try:
            header = (metadata_load(card) if card.is_file() else None) or {}
        except (yaml.YAMLError, ValueError):
            log.warning("%s: its header cannot be read; the licence of the model remains unknown", card)
            header = {}
        named, terms = (value if isinstance(value := header.get(key), str) else None for key in cls._fields)
        return cls(name or named, terms)

    def write(self, folder: Path) -> None:
        """Write a card with nothing else, which models that begin with this one read."""
        if known := {key: value for key, value in self._asdict().items() if value}:
            (folder / CARD).write_text(f"---\n{yaml.safe_dump(known)}---\n", encoding="utf-8", newline="\n")


def write_card(
    folder: Path,
    name: str,
    kind: str | None,
    settings: Mapping[str, Any],
    notes: Sequence[str] = (),
    origin: Origin | None = None,
    data: str | None = None,
    measures: Mapping[str, float] | None = None,
) -> None:
    """Write the card of a model whose other files are in a folder.

    :param kind: class of sentence-transformers that loads the folder; None if only this project does.
    :param data: name of the data that it was trained on.
    :param measures: of its validation queries.
    """
    from huggingface_hub import EvalResult, ModelCardData

    (task, tags), code = USES[kind] if kind else (None, []), PREDICT if kind == "CrossEncoder" else ENCODE
    results = [
        EvalResult("information-retrieval", data or "", f"{data}, validation", measure, round(value, 4))
        for measure, value in (measures or {}).items()
    ]
    header = ModelCardData(
        **(origin or Origin())._asdict(),
        datasets=[data] if data else None,
        library_name="sentence-transformers" if kind else None,
        pipeline_tag=task,
        tags=[*tags, "cort"],
        metrics=list(measures or ()) or None,
        model_name=name if results else None,
        eval_results=results or None,
    )
    if kind:
        use = ["```python", f"from sentence_transformers import {kind}", "", f'model = {kind}("{name}")', code, "```"]
    else:
        use = ["Only the CoRT workflow loads this kind of model."]
    lines = [
        "---",
        header.to_yaml(),
        "---",
        "",
        f"# {name}",
        "",
        *use,
        "",
        *(line for note in notes for line in (note, "")),
    ]
    lines += _table("Settings", ("key", "value"), {key: str(value) for key, value in settings.items()})
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD)
    sums = {path.relative_to(folder).as_posix(): checksum(path) for path in files}
    lines += _table("Files", ("file", "SHA-256"), sums)
    made = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    lines += [f"Made by the CoRT workflow {__version__} with {made}."]
    (folder / CARD).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def _table(title: str, header: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    if not rows:
        return []
    cells = [f"| {key} | `{value.replace('|', '/').replace('`', '')}` |" for key, value in rows.items()]
    return [f"## {title}", "", f"| {header[0]} | {header[1]} |", "|---|---|", *cells, ""]
