"""What a searcher opens, as the stage `manifest` writes it: files, models, and how each system is made.

Paths are relative to the manifest, so that a folder of results can be moved whole. A system is a mapping with a `kind`:

* bm25: `k1` and `b`, or `parameters`, a file with both
* exact: `encoder`
* one of `GRAPHS`: `encoder`, `index` (a folder), and the `width` of the search, or `audit`, a file, and the `recall` it
  is to show
* one of `FUSIONS`: `parts`, names of systems, the first-named first; with rrf `k`; with linear `normalization`, and
  `weights` or `tuned`, a file with them
* rerank: `candidates`, the name of a system, `reranker`, `depth`, how many candidates are scored, and the `weight` of
  their scores if it is not 1, or `tuned`, a file with it
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import GRAPHS
from cort.system.errors import input_error, shorten
from cort.system.files import write_text

System: TypeAlias = Mapping[str, Any]

#: kind -> keys a system of it has: numbers, or the file they are found in
KEYS: Mapping[str, set[tuple[str, ...]]] = {
    "bm25": {("k1", "b"), ("parameters",)},
    "exact": {("encoder",)},
    **{kind: {("encoder", "index", "width"), ("encoder", "index", "audit", "recall")} for kind in GRAPHS},
    **{method: {("parts",)} for method in FUSIONS},
    "rrf": {("parts",), ("parts", "k")},
    "linear": {("parts", "normalization", "weights"), ("parts", "normalization", "tuned")},
    "rerank": {("candidates", "reranker", "depth", *more) for more in ((), ("weight",), ("tuned",))},
}
#: keys whose value is a path
PATHS = ("index", "parameters", "audit", "tuned")
#: keys whose value is the name of a model, and where that is
SECTIONS = (("encoders", "encoder"), ("rerankers", "reranker"))
#: keys whose value is a number
NUMBERS = ("k1", "b", "width", "recall", "depth", "k", "weight")
REMEDY = "run `snakemake` again"
#: what reading a manifest of another form ends with
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Model:
    """A model folder, how its texts are cleaned, the precision of its products, and its `files`.

    Of an encoder these are the shards of the passages' vectors, of a re-ranker the token cache of the passages.
    """

    model: Path
    cleaning: str
    precision: str
    files: tuple[Path, ...]


@dataclass(frozen=True)
class Manifest:
    """All that a manifest names; `depth` is the number of results per query in the workflow's runs."""

    dataset: str
    depth: int
    passages: Path
    bm25_index: Path
    bm25_cleaning: str
    encoders: Mapping[str, Model]
    rerankers: Mapping[str, Model]
    systems: Mapping[str, System]

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
            if system["kind"] == "bm25":
                yield self.bm25_index
            for section, key in SECTIONS:
                if key in system:
                    model = getattr(self, section)[system[key]]
                    yield from (model.model, *model.files)

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
        found = json.loads(path.read_text(encoding="utf-8"))
        manifest = Manifest(
            dataset=str(found["dataset"]),
            depth=int(found["depth"]),
            passages=path.parent / found["passages"],
            bm25_index=path.parent / found["bm25_index"],
            bm25_cleaning=str(found["bm25_cleaning"]),
            encoders=models_of(found["encoders"], path.parent),
            rerankers=models_of(found["rerankers"], path.parent),
            systems=systems_of(found["systems"], path.parent),
        )
    except FileNotFoundError:
        raise input_error(path, "no such file", "what the stage `manifest` writes", "run `snakemake` first") from None
    except MALFORMED as error:
        complaint = f"{type(error).__name__} {shorten(str(error))}"
        raise input_error(path, complaint, "what the stage `manifest` wrote", REMEDY) from None
    check_systems(manifest, path)
    return manifest


def models_of(found: Mapping[str, Any], folder: Path) -> dict[str, Model]:
    """Read models by name; their paths are relative to `folder`."""
    return {
        name: Model(
            model=folder / model["model"],
            cleaning=str(model["cleaning"]),
            precision=str(model["precision"]),
            files=tuple(folder / file for file in model["files"]),
        )
        for name, model in found.items()
    }


def systems_of(found: Mapping[str, Any], folder: Path) -> dict[str, System]:
    """Read systems by name; their paths are relative to `folder`."""
    return {
        name: {key: folder / value if key in PATHS else _checked(key, value) for key, value in system.items()}
        for name, system in found.items()
    }


def _checked(key: str, value: Any) -> Any:
    """Return the value of a key that is no path, if it is of the right kind."""
    if key in NUMBERS:
        right = isinstance(value, int | float) and math.isfinite(value)
    elif key == "parts":
        right = isinstance(value, list) and all(isinstance(part, str) for part in value)
    elif key == "weights":
        right = isinstance(value, list) and all(isinstance(one, int | float) and 0 <= one < math.inf for one in value)
    else:
        right = isinstance(value, str)
    if not right:
        raise TypeError(f"{key}: {value!r}")
    return value


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
        missing = [part for part in manifest.parts_of(name) if part not in manifest.systems]
        if missing:
            raise input_error(source, f"no system {shorten(missing[0])}", f"that of {shorten(name)}", REMEDY)
    try:
        TopologicalSorter({name: manifest.parts_of(name) for name in manifest.systems}).prepare()
    except CycleError as error:
        found = f"the system {shorten(error.args[1][0])} made of itself"
        raise input_error(source, found, "no circle", REMEDY) from None
