"""The card of a saved model, ``README.md`` in its folder: how to use it, how it was made, and checksums of its files.

The workflow takes this file for the whole folder: it changes whenever a weight does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cort import __version__
from cort.runtime.checksums import checksum

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


def write_card(
    folder: Path, name: str, kind: str | None, settings: Mapping[str, Any], notes: Sequence[str] = ()
) -> None:
    """Write the card of a model whose other files are in a folder.

    :param kind: class of sentence-transformers that loads the folder; None if only this project does.
    """
    lines = ["---"]
    if kind:
        (task, tags), code = USES[kind], PREDICT if kind == "CrossEncoder" else ENCODE
        lines += ["library_name: sentence-transformers", f"pipeline_tag: {task}", "tags:"]
        lines += [f"- {tag}" for tag in [*tags, "cort"]]
        use = ["```python", f"from sentence_transformers import {kind}", "", f'model = {kind}("{name}")', code, "```"]
    else:
        lines += ["tags:", "- cort"]
        use = ["Only the CoRT workflow loads this kind of model."]
    lines += ["---", "", f"# {name}", "", *use, "", *(line for note in notes for line in (note, ""))]
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
