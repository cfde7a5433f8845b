"""What a searcher opens, as the stage `manifest` writes it: files, models, and how each system is made from them.

Paths are relative to the manifest, so a folder of results can be moved. A system is a mapping with a `kind` of
`cort.systems.registry.ANSWERS`, and the keys that it takes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, get_args

from cort.formats.artifacts import Node, read_json
from cort.formats.cleaning import FORMS
from cort.retrieval.bm25 import LARGEST_K1
from cort.retrieval.fusion import NORMALIZATIONS
from cort.retrieval.graphs import INDEXES
from cort.settings.fields import Precision
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.systems.opened import Entry, Opened
from cort.systems.registry import ANSWERS

#: keys whose value is a path
PATHS = ("index", "parameters", "audit", "tuned")
#: sections of models and term-based indexes, and the key of a system that names an entry
SECTIONS = {"lexical": "lexical", "encoders": "encoder", "rerankers": "reranker", "token_encoders": "token_encoder"}
DEEPEST, LARGEST = 100_000, 1_000_000
#: keys whose value is a number: its type and bounds
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

    The files are the shards of the passages' vectors or token vectors or, for a re-ranker, the passages' token cache.
    """

    model: Path
    cleaning: str
    precision: str
    files: tuple[Path, ...]

    @property
    def opened(self) -> tuple[Path, ...]:
        """All paths that are opened."""
        return (self.model, *self.files)


@dataclass(frozen=True)
class LexicalIndex:
    """Folder of a Lucene index, and how its texts and the queries are cleaned."""

    index: Path
    cleaning: str

    @property
    def opened(self) -> tuple[Path, ...]:
        """All paths that are opened."""
        return (self.index,)


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest; `depth` is the number of results per query in the workflow's runs."""

    dataset: str
    depth: int
    passages: Path
    lexical: Mapping[str, LexicalIndex]
    encoders: Mapping[str, Model]
    rerankers: Mapping[str, Model]
    systems: Mapping[str, Entry]
    token_encoders: Mapping[str, Model] = field(default_factory=dict)

    def parts_of(self, name: str) -> list[str]:
        """Return the systems whose results a system is made from."""
        system = self.systems[name]
        return [*system.get("parts", []), *(system[key] for key in ("candidates",) if key in system)]

    def needed(self, names: Iterable[str]) -> dict[str, Entry]:
        """Return systems and all systems they are made from, each after its parts."""
        needed: dict[str, Entry] = {}
        for name in names:
            needed |= self.needed(self.parts_of(name)) | {name: self.systems[name]}
        return needed

    def open(self, names: Iterable[str]) -> dict[str, Opened]:
        """Make systems and all systems they are made from ready to answer, each after its parts."""
        return {name: ANSWERS[entry["kind"]](name, entry) for name, entry in self.needed(names).items()}

    def opened(self, needed: Mapping[str, Entry]) -> Iterator[Path]:
        """Return the files and folders that are opened for systems."""
        yield self.passages
        for system in needed.values():
            yield from (system[key] for key in PATHS if key in system)
            for section, key in SECTIONS.items():
                if key in system:
                    yield from getattr(self, section)[system[key]].opened

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse names of unknown systems."""
        for name in names:
            if name not in self.systems:
                known = ", ".join(self.systems) or "(there is none)"
                raise input_error("--systems", shorten(name), f"one of {known}", "name one of these")

    def typical_systems(self) -> list[str]:
        """Choose the first BM25, dense and fused system, as far as there are any."""
        lexical = [name for name, system in self.systems.items() if "lexical" in system]
        dense = [name for name in self.systems if name not in lexical and not self.parts_of(name)]
        fused = [name for name, system in self.systems.items() if "parts" in system]
        return [names[0] for names in (lexical, dense, fused) if names] or list(self.systems)[:1]


def write_manifest(path: str | Path, manifest: Manifest) -> None:
    """Write a manifest atomically; its paths become relative to its folder."""
    start = Path(path).parent
    text = json.dumps(asdict(manifest), indent=2, default=lambda value: Path(os.path.relpath(value, start)).as_posix())
    write_text(path, text + "\n")


def read_manifest(path: str | Path) -> Manifest:
    """Read and check a manifest.

    :raises InputError: names the file; if it does not exist, the experiment must be built first.
    """
    path = Path(path)
    try:
        root = read_json(path)
    except FileNotFoundError:
        raise input_error(path, "no such file", "what the stage `manifest` writes", "run `snakemake` first") from None
    # Older manifests have no token encoders.
    sections = {"token_encoders": Node(path, {})}
    sections |= {name: root[name] for name in (*SECTIONS, "systems") if name not in sections or name in root.of(dict)}
    depth, passages = root["depth"].within(int, 1, DEEPEST), _path(root["passages"], path.parent)
    return make_manifest(root["dataset"].read(str), depth, passages, sections, path, path.parent)


def make_manifest(
    dataset: str, depth: int, passages: Path, sections: Mapping[str, Node], source: str | Path, folder: Path
) -> Manifest:
    """Make a manifest from its sections and check it.

    :param folder: to which the paths in the sections are relative.
    :raises InputError: names `source`, or what has the section that is wrong.
    """
    manifest = Manifest(
        dataset=dataset,
        depth=depth,
        passages=passages,
        lexical={
            name: LexicalIndex(_path(entry["index"], folder), _choice(entry["cleaning"], FORMS))
            for name, entry in _entries(sections["lexical"])
        },
        encoders=_models(sections["encoders"], folder),
        rerankers=_models(sections["rerankers"], folder),
        systems={
            name: {key: _value(key, value, folder) for key, value in _entries(entry)}
            for name, entry in _entries(sections["systems"])
        },
        token_encoders=_models(sections["token_encoders"], folder),
    )
    for name in manifest.systems:
        _check_system(manifest, name, source)
    try:
        TopologicalSorter({name: manifest.parts_of(name) for name in manifest.systems}).prepare()
    except CycleError as error:
        found = f"the system {shorten(error.args[1][0])} made of itself"
        raise input_error(source, found, "no cycle", REMEDY) from None
    return manifest


def _entries(section: Node) -> Iterator[tuple[str, Node]]:
    return ((name, section[name]) for name in section.of(dict))


def _models(section: Node, folder: Path) -> dict[str, Model]:
    models = {}
    for name, entry in _entries(section):
        files = tuple(_path(file, folder) for file in entry["files"].items())
        if not files:
            raise entry["files"].complain("no file", "at least one")
        precision = _choice(entry["precision"], get_args(Precision))
        models[name] = Model(_path(entry["model"], folder), _choice(entry["cleaning"], FORMS), precision, files)
    return models


def _value(key: str, node: Node, folder: Path) -> Any:
    """Return the value of a key of a system, if it is of the right type."""
    if key in NUMBERS:
        return node.within(*NUMBERS[key])
    if key == "parts":
        return node.read(list[str])
    if key == "weights":
        return [weight.within(float, 0, LARGEST) for weight in node.items()]
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


def _check_system(manifest: Manifest, name: str, source: str | Path) -> None:
    """Refuse a system of an unknown kind, with the wrong keys, or made of what is not there."""
    refused = partial(input_error, source, fix=REMEDY)
    system = manifest.systems[name]
    kind = str(system.get("kind"))
    keys = system.keys() - {"kind"}
    if kind not in ANSWERS or keys not in map(set, ANSWERS[kind].kinds[kind]):
        listed = ", ".join(key for key in system if key != "kind") or "nothing"
        found = f"the system {shorten(name)} of kind {kind} with {listed}"
        raise refused(found, f"one of {', '.join(ANSWERS)} with all it needs")
    for section, key in SECTIONS.items():
        if key in system and system[key] not in getattr(manifest, section):
            raise refused(f"no {key} {shorten(system[key])}", f"that of {shorten(name)}")
    if "width" in system:
        INDEXES[kind].check(str(source), [system["width"]], 0)
    parts = system.get("parts")
    if parts is not None and (len(parts) < 2 or len(set(parts)) < len(parts)):
        found = f"{len(parts)} parts of {shorten(name)}, {len(set(parts))} of them different"
        raise refused(found, "two or more, each once")
    for part in manifest.parts_of(name):
        if part not in manifest.systems:
            raise refused(f"no system {shorten(part)}", f"that of {shorten(name)}")
