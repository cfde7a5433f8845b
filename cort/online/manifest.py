"""What a searcher opens, as the stage `manifest` writes it: files, models, and how each system is made.

Paths are relative to the manifest, so that a folder of results can be moved whole. A system is a mapping with a `kind`:

* bm25: `lexical`, the name of an index, and `k1` and `b`, or `parameters`, a file with both
* exact: `encoder`
* late_interaction: `token_encoder`
* ivfpq: `token_encoder`, `per_token`, the candidates of each token of a query, and the rest as below
* one of `GRAPHS`: `encoder`, `index` (a folder), and the `width` of the search, or `audit`, a file, and the `recall` it
  is to show
* one of `FUSIONS`: `parts`, names of systems, the first-named first; with rrf `k`; with linear `normalization`, and
  `weights` or `tuned`, a file with them
* rerank: `candidates`, the name of a system, `reranker`, `depth`, how many candidates are scored, and the `weight` of
  their scores if it is not 1, or `tuned`, a file with it
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias, get_args

from cort.formats.artifacts import Node, read_json
from cort.formats.cleaning import FORMS
from cort.models.settings import Precision
from cort.retrieval.bm25 import LARGEST_K1
from cort.retrieval.fusion import FUSIONS, NORMALIZATIONS
from cort.retrieval.graphs import GRAPHS, INDEXES, TOKEN_INDEXES
from cort.system.errors import input_error, shorten
from cort.system.files import write_text

System: TypeAlias = Mapping[str, Any]

#: of an index: the width of its searches, or what chooses it
WIDTHS = (("width",), ("audit", "recall"))
#: kind -> keys a system of it has: numbers, or the file they are found in
KEYS: Mapping[str, set[tuple[str, ...]]] = {
    "bm25": {("lexical", "k1", "b"), ("lexical", "parameters")},
    "exact": {("encoder",)},
    "late_interaction": {("token_encoder",)},
    **{kind: {("encoder", "index", *width) for width in WIDTHS} for kind in GRAPHS},
    **{kind: {("token_encoder", "per_token", "index", *width) for width in WIDTHS} for kind in TOKEN_INDEXES},
    **{method: {("parts",)} for method in FUSIONS},
    "rrf": {("parts",), ("parts", "k")},
    "linear": {("parts", "normalization", "weights"), ("parts", "normalization", "tuned")},
    "rerank": {("candidates", "reranker", "depth", *more) for more in ((), ("weight",), ("tuned",))},
}
#: keys whose value is a path
PATHS = ("index", "parameters", "audit", "tuned")
#: keys whose value is the name of a model or of a term-based index, and where that is
SECTIONS = (
    ("encoders", "encoder"),
    ("rerankers", "reranker"),
    ("token_encoders", "token_encoder"),
    ("lexical", "lexical"),
)
DEEPEST, LARGEST = 100_000, 1_000_000
#: keys whose value is a number, its kind and its bounds
NUMBERS: Mapping[str, tuple[type, float, float]] = {
    "k1": (float, 0, LARGEST_K1),
    "b": (float, 0, 1),
    "width": (float, -1, 100 * LARGEST),
    "recall": (float, 0, 1),
    "depth": (int, 1, DEEPEST),
    "k": (float, 0, LARGEST),
    "weight": (float, 0, 1),
    "per_token": (int, 1, 100 * LARGEST),
}
REMEDY = "run `snakemake` again"


@dataclass(frozen=True)
class Model:
    """A model folder, how its texts are cleaned, the precision of its products, and its `files`.

    Of an encoder, also one of tokens, these are the shards of the passages' vectors; of a re-ranker, the token cache of
    the passages.
    """

    model: Path
    cleaning: str
    precision: str
    files: tuple[Path, ...]

    @property
    def opened(self) -> tuple[Path, ...]:
        """All that is opened."""
        return (self.model, *self.files)


@dataclass(frozen=True)
class LexicalIndex:
    """Folder of a Lucene index, and how its texts and the queries are cleaned."""

    index: Path
    cleaning: str

    @property
    def opened(self) -> tuple[Path, ...]:
        """All that is opened."""
        return (self.index,)


@dataclass(frozen=True)
class Manifest:
    """All that a manifest names; `depth` is the number of results per query in the workflow's runs."""

    dataset: str
    depth: int
    passages: Path
    lexical: Mapping[str, LexicalIndex]
    encoders: Mapping[str, Model]
    rerankers: Mapping[str, Model]
    systems: Mapping[str, System]
    token_encoders: Mapping[str, Model] = field(default_factory=dict)

    def parts_of(self, name: str) -> list[str]:
        """Systems whose results a system is made from."""
        system = self.systems[name]
        return list(system.get("parts", [])) + ([system["candidates"]] if "candidates" in system else [])

    def needed(self, names: Iterable[str]) -> dict[str, System]:
        """Systems that some systems are made of, these included, each after its parts."""
        found: dict[str, System] = {}
        for name in names:
            found |= self.needed(self.parts_of(name)) | {name: self.systems[name]}
        return found

    def opened(self, needed: Mapping[str, System]) -> Iterator[Path]:
        """Files and folders that are opened for systems."""
        yield self.passages
        for system in needed.values():
            yield from (system[key] for key in PATHS if key in system)
            for section, key in SECTIONS:
                if key in system:
                    yield from getattr(self, section)[system[key]].opened

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names of systems that are not there."""
        for name in names:
            if name not in self.systems:
                known = ", ".join(self.systems) or "(there is none)"
                raise input_error("--systems", shorten(name), f"one of {known}", "name one of these")


def write_manifest(path: str | Path, manifest: Manifest) -> None:
    """Write a manifest, atomically; its paths become relative to its own folder."""
    start = Path(path).parent
    text = json.dumps(asdict(manifest), indent=2, default=lambda value: Path(os.path.relpath(value, start)).as_posix())
    write_text(path, text + "\n")


def read_manifest(path: str | Path) -> Manifest:
    """Read and check a manifest.

    :raises InputError: names the file; one that is not there is still to be built.
    """
    path = Path(path)
    try:
        found = read_json(path)
    except FileNotFoundError:
        raise input_error(path, "no such file", "what the stage `manifest` writes", "run `snakemake` first") from None
    manifest = Manifest(
        dataset=found["dataset"].read(str),
        depth=found["depth"].within(int, 1, DEEPEST),
        passages=_path(found["passages"], path.parent),
        lexical=indexes_of(found["lexical"], path.parent),
        encoders=models_of(found["encoders"], path.parent),
        rerankers=models_of(found["rerankers"], path.parent),
        systems=systems_of(found["systems"], path.parent),
        # Manifests that are older than these have none.
        token_encoders=models_of(found["token_encoders"], path.parent) if "token_encoders" in found.value else {},
    )
    check_systems(manifest, path)
    return manifest


def indexes_of(found: Node, folder: Path) -> dict[str, LexicalIndex]:
    """Read term-based indexes by name; their paths are relative to `folder`."""
    return {
        name: LexicalIndex(_path(found[name]["index"], folder), _choice(found[name]["cleaning"], FORMS))
        for name in found.of(dict)
    }


def models_of(found: Node, folder: Path) -> dict[str, Model]:
    """Read models by name; their paths are relative to `folder`."""
    return {name: _model(found[name], folder) for name in found.of(dict)}


def _model(node: Node, folder: Path) -> Model:
    files = tuple(_path(file, folder) for file in node["files"].items())
    if not files:
        raise node["files"].complain("no file", "one at least")
    precision = _choice(node["precision"], get_args(Precision))
    return Model(_path(node["model"], folder), _choice(node["cleaning"], FORMS), precision, files)


def systems_of(found: Node, folder: Path) -> dict[str, System]:
    """Read systems by name; their paths are relative to `folder`."""
    return {name: {key: _value(found[name], key, folder) for key in found[name].of(dict)} for name in found.of(dict)}


def _value(system: Node, key: str, folder: Path) -> Any:
    """Return the value of a key, if it is of the right kind."""
    node = system[key]
    if key in NUMBERS:
        return node.within(*NUMBERS[key])
    if key == "parts":
        return node.read(list[str])
    if key == "weights":
        return [one.within(float, 0, LARGEST) for one in node.items()]
    if key == "normalization":
        return _choice(node, NORMALIZATIONS)
    return _path(node, folder) if key in PATHS else node.read(str)


def _path(node: Node, folder: Path) -> Path:
    name: str = node.read(str)
    if not name or "\0" in name:
        raise node.complain(shorten(name), "a path")
    return folder / name


def _choice(node: Node, known: Collection[str]) -> str:
    name: str = node.read(str)
    if name not in known:
        raise node.complain(shorten(name), f"one of {', '.join(known)}")
    return name


def check_systems(manifest: Manifest, source: str | Path) -> None:
    """Refuse systems of unknown kinds, of wrong keys, or made of what is not there or of themselves.

    :raises InputError: names `source`.
    """
    for name, system in manifest.systems.items():
        kind = str(system.get("kind"))
        keys = tuple(key for key in system if key != "kind")
        if kind not in KEYS or not any(set(keys) == set(known) for known in KEYS[kind]):
            found = f"the system {shorten(name)} of kind {kind} with {', '.join(keys) or 'nothing'}"
            raise input_error(source, found, f"one of {', '.join(KEYS)} with all it needs", REMEDY)
        for section, key in SECTIONS:
            if key in system and system[key] not in getattr(manifest, section):
                raise input_error(source, f"no {key} {shorten(system[key])}", f"that of {shorten(name)}", REMEDY)
        if "width" in system:
            INDEXES[kind].check(str(source), [system["width"]], 0)
        parts = system.get("parts")
        if parts is not None and (len(parts) < 2 or len(set(parts)) < len(parts)):
            found = f"{len(parts)} parts of {shorten(name)}, {len(set(parts))} of them different"
            raise input_error(source, found, "two or more, each once", REMEDY)
        missing = [part for part in manifest.parts_of(name) if part not in manifest.systems]
        if missing:
            raise input_error(source, f"no system {shorten(missing[0])}", f"that of {shorten(name)}", REMEDY)
    try:
        TopologicalSorter({name: manifest.parts_of(name) for name in manifest.systems}).prepare()
    except CycleError as error:
        found = f"the system {shorten(error.args[1][0])} made of itself"
        raise input_error(source, found, "no circle", REMEDY) from None
