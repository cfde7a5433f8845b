"""All classes of systems. Other code asks the object of a system, and never for its class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import create_model

from cort.config.entries import BM25, LATE_INTERACTION, Config, listed
from cort.runtime.errors import check_name
from cort.runtime.sections import NOT_NULL, Maybe, Section, Text, hint_of, keys_of
from cort.systems.base import System
from cort.systems.lexical import Bm25
from cort.systems.merging import Fuse, Interleave
from cort.systems.published import Published
from cort.systems.rerank import Rerank
from cort.systems.results import Results
from cort.systems.vectors import Dense, Graph, IvfPq, LateInteraction, Sparse, TokenIvfPq

#: in the order in which an entry of the config is matched
CLASSES: tuple[type[System], ...] = (
    Bm25,
    Graph,
    IvfPq,
    Dense,
    Sparse,
    TokenIvfPq,
    LateInteraction,
    Interleave,
    Fuse,
    Rerank,
    Published,
)
#: the keys that an entry has one of
KEYS = list(dict.fromkeys(cls.key() for cls in CLASSES))


class Labelled(Section):
    """What every entry may say, of whatever class; no run depends on it."""

    label: Maybe[Text] = None
    """What `systems.tex`, the table for papers, calls it (default: its name)."""


def _entry_of_any() -> type[Section]:
    """Join the keys of all classes: which class an entry is of depends on what the names in it are, elsewhere."""
    optional: dict[str, Any] = {}
    for cls in CLASSES:
        for name, field in keys_of(cls.Settings).items():
            hint: Any = hint_of(field)
            optional.setdefault(name, (Annotated[hint | None, NOT_NULL], None))
    return create_model("System", __base__=Labelled, **optional)


if TYPE_CHECKING:
    AnySystem: TypeAlias = Section
else:
    #: an entry under `systems`, of any class
    AnySystem = _entry_of_any()


def system_of(results: Results, name: str, entry: Mapping[str, Any]) -> System:
    """Make a system of the keys that are set in its entry, one of them of `KEYS`."""
    return next(cls for cls in CLASSES if cls.takes(entry, results))(results, name, entry)


def set_keys(results: Results, name: str) -> Config:
    """Return the keys of its class that are set in an entry under `systems`, with their values."""
    return {key: value for key, value in results.root.systems[name] if value is not None and key != "label"}


def label_of(results: Results, name: str) -> str:
    """Return what papers call a system."""
    return dict(results.root.systems[name])["label"] or name


def exact_search(results: Results, model: str) -> System:
    """Return exact search with an encoder or re-ranker, which may be no system of the config."""
    return system_of(results, model, {"retrieve": model})


def check_entry(results: Results, name: str) -> Iterator[str]:
    """Yield a line for each mistake in an entry of the right shape."""
    entry = set_keys(results, name)
    keys = [key for key in KEYS if key in entry]
    if len(keys) != 1:
        yield f"systems.{name}: found {listed(keys)}, expected exactly one of {listed(KEYS)}; keep one"
        return
    if entry.get("retrieve", BM25) not in {*results.lexical, *results.encoders, *results.rerankers}:
        # What else it says depends on the type of what is named.
        retrieving = [model for model, settings in results.rerankers.items() if settings.kind == LATE_INTERACTION]
        known = [*results.lexical, *results.encoders, *retrieving]
        yield from check_name(f"systems.{name}.retrieve", entry["retrieve"], known)
        return
    system = system_of(results, name, entry)
    for key in sorted(entry.keys() - set(system.key_names())):
        nouns = dict.fromkeys(cls.noun or cls.key() for cls in CLASSES if key in cls.key_names())
        found = f"found {key} with {system.noun or system.key()}"
        yield f"{system.place}.{key}: {found}, expected it with {' or '.join(nouns)}; remove it"
    yield from system.check()
