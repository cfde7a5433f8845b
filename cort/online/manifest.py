"""What a searcher opens, as the stage `manifest` writes it: files, models, and how each system is made.

Paths are relative to the manifest, so that a folder of results can be moved whole. A system is a mapping with a `kind`:

* bm25: `k1` and `b`, or `parameters`, a file with both
* exact: `encoder`
* one of `GRAPHS`: `encoder`, `index` (a folder), and the `width` of the search, or `audit`, a file, and the `recall` it
  is to show
* interleave: `parts`, names of systems, the first-named first
* rerank: `candidates`, the name of a system, `reranker`, and `depth`, how many candidates are scored
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from cort.system.errors import input_error, shorten

System: TypeAlias = Mapping[str, Any]

#: kinds of graph index
GRAPHS = ("onng", "hnsw")
#: kind -> keys a system of it has: numbers, or the file they are found in
KEYS: Mapping[str, set[tuple[str, ...]]] = {
    "bm25": {("k1", "b"), ("parameters",)},
    "exact": {("encoder",)},
    **{kind: {("encoder", "index", "width"), ("encoder", "index", "audit", "recall")} for kind in GRAPHS},
    "interleave": {("parts",)},
    "rerank": {("candidates", "reranker", "depth")},
}
#: keys whose value is a path
PATHS = ("index", "parameters", "audit")
REMEDY = "run `snakemake` again"


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
class Contents:
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

    def within(self, name: str) -> Iterator[str]:
        """Yield the systems a system is made of, itself included, each as often as it is needed."""
        for part in self.parts_of(name):
            yield from self.within(part)
        yield name

    def first(self, *kinds: str) -> str | None:
        """First system of some kinds."""
        return next((name for name, system in self.systems.items() if system["kind"] in kinds), None)


def write_contents(contents: Contents, path: Path) -> str:
    """Make the manifest's text; its paths become relative to that of the manifest."""

    def default(value: object) -> str:
        if isinstance(value, Path):
            return Path(os.path.relpath(value, path.parent)).as_posix()
        raise TypeError(type(value).__name__)

    return json.dumps(asdict(contents), indent=2, default=default) + "\n"


def read_contents(path: str | Path) -> Contents:
    """Read and check a manifest.

    :raises InputError: names the file; one that is not there is still to be built.
    """
    path = Path(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        contents = Contents(
            dataset=str(found["dataset"]),
            depth=int(found["depth"]),
            passages=path.parent / found["passages"],
            bm25_index=path.parent / found["bm25_index"],
            bm25_cleaning=str(found["bm25_cleaning"]),
            encoders={name: model_of(one, path.parent) for name, one in found["encoders"].items()},
            rerankers={name: model_of(one, path.parent) for name, one in found["rerankers"].items()},
            systems={name: _placed(one, path.parent) for name, one in found["systems"].items()},
        )
    except FileNotFoundError:
        raise input_error(path, "no such file", "what the stage `manifest` writes", "run `snakemake` first") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        complaint = f"{type(error).__name__} {shorten(str(error))}"
        raise input_error(path, complaint, "what the stage `manifest` wrote", REMEDY) from None
    check_systems(contents, path)
    return contents


def model_of(found: Mapping[str, Any], folder: Path) -> Model:
    """Read one model; its paths are relative to `folder`."""
    files = tuple(folder / file for file in found["files"])
    return Model(folder / found["model"], str(found["cleaning"]), str(found["precision"]), files)


def _placed(system: System, folder: Path) -> System:
    return {key: folder / value if key in PATHS else value for key, value in system.items()}


def check_systems(contents: Contents, source: str | Path) -> None:
    """Refuse systems of unknown kinds, of wrong keys, or made of what is not there or of themselves.

    :raises InputError: names `source`.
    """
    done: set[str] = set()
    for name, system in contents.systems.items():
        kind = str(system.get("kind"))
        keys = tuple(key for key in system if key != "kind")
        if kind not in KEYS or not any(set(keys) == set(known) for known in KEYS[kind]):
            found = f"the system {shorten(name)} of kind {kind} with {', '.join(keys) or 'nothing'}"
            raise input_error(source, found, f"one of {', '.join(KEYS)} with all it needs", REMEDY)
        for section, key in (("encoders", "encoder"), ("rerankers", "reranker")):
            if key in system and system[key] not in getattr(contents, section):
                raise input_error(source, f"no {key} {shorten(system[key])}", f"that of {shorten(name)}", REMEDY)
        missing = [part for part in contents.parts_of(name) if part not in contents.systems]
        if missing:
            raise input_error(source, f"no system {shorten(missing[0])}", f"that of {shorten(name)}", REMEDY)
    for name in contents.systems:
        _refuse_circle(contents, name, (), done, source)


def _refuse_circle(contents: Contents, name: str, above: tuple[str, ...], done: set[str], source: str | Path) -> None:
    if name in above:
        raise input_error(source, f"the system {shorten(name)} made of itself", "no circle", REMEDY)
    if name not in done:
        for part in contents.parts_of(name):
            _refuse_circle(contents, part, (*above, name), done, source)
        done.add(name)
