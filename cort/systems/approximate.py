"""What searches of approximate indexes share: the width of the search, its recall, and the audit that measures both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from cort.retrieval.graphs import INDEXES, RECALL, IndexKind
from cort.settings import paths
from cort.settings.config import evaluated_splits, ranked_splits
from cort.settings.fields import setting
from cort.systems.base import Option, System


@dataclass(frozen=True, kw_only=True)
class Width:
    """Keys of every search whose width an audit can choose."""

    recall: float | None = setting(None, gt=0, le=1)
    """With `auto`, recall of the exact top `depth` to reach, as audited on the split `validation`, or on the
    evaluated split if there is none; 0.99 if not set."""


@dataclass(frozen=True, kw_only=True)
class IvfPqSearch(Width):
    """Search of an IVF-PQ index."""

    probes: int | Literal["auto"] = setting(32, ge=1, le=100_000_000)
    """Width of the search, the lists that are read for each query or, with late interaction, each of its tokens
    (nprobe). `auto` takes the smallest of `audit.probes` that reaches `recall`."""
    candidates: int = setting(1024, ge=1, le=10_000_000)
    """Nearest vectors taken for each query or, with late interaction, each of its tokens; the passages of all are
    scored exactly. With an encoder, `depth` or more."""


class ApproximateSearch(System):
    """A system that searches an approximate index of a model's vectors.

    :cvar indexes: names of the kinds of index, each a key of the config.
    """

    indexes: ClassVar[tuple[str, ...]]

    @property
    def index(self) -> str:
        """Name the kind of the index."""
        return next(name for name in self.indexes if name in self.entry)

    @property
    def index_kind(self) -> IndexKind:
        """Describe the kind of the index."""
        return INDEXES[self.index]

    @property
    def width(self) -> Any:
        """Width of the search: a number, or auto."""
        return self.entry[self.index][self.index_kind.parameter]

    def approximate_index(self) -> tuple[str, str] | None:
        """Name the model and the kind."""
        return self.entry["retrieve"], self.index

    def chosen_by_audit(self) -> bool:
        """Tell whether the width is auto."""
        return bool(self.width == "auto")

    def fill(self) -> None:
        """Set the recall to reach."""
        if self.chosen_by_audit():
            self.entry[self.index].setdefault("recall", RECALL)

    def check_void(self) -> Iterator[str]:
        """Find a recall without an audit that could reach it."""
        for name in self.indexes:
            search, parameter = self.entry.get(name), INDEXES[name].parameter
            if search and "recall" in search and search.get(parameter) != "auto":
                expected = "expected both or none; add it or remove recall"
                yield f"{self.place}.{name}.recall: found recall without `{parameter}: auto`, {expected}"

    def describe_width(self) -> str:
        """Describe the width."""
        if self.chosen_by_audit():
            return f"recall {self.entry[self.index]['recall']:g} of exact search"
        return f"{self.index_kind.parameter} {self.width}"

    def audit_on(self, split: str) -> str:
        """Path of the audit that chooses the width: on validation queries, or else on the split's own.

        :param split: if it is not evaluated (or ""), the first split that is evaluated, or else ranked, is used.
        """
        splits = evaluated_splits(self.config) or ranked_splits(self.config)
        own = split if split in splits else splits[0]
        chosen = "validation" if "validation" in self.config["splits"] else own
        return self.results.at(paths.AUDIT, split=chosen, encoder=self.entry["retrieve"], index=self.index)

    def index_folder(self) -> str:
        """Folder of the index; it ends with a slash."""
        return self.results.at(paths.GRAPH, index=self.index, encoder=self.entry["retrieve"])

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name the index, and the audit if it chooses the width."""
        audit: str | list[str] = self.audit_on(split) if self.chosen_by_audit() else []
        return {"index": self.index_folder() + "meta.json", "audit": audit}

    def options(self, split: str) -> list[Option]:
        """Give the width, or the audit and the recall it must show."""
        place, parameter = f"{self.place}.{self.index}", self.index_kind.parameter
        if not self.chosen_by_audit():
            width = [Option("width", self.width, f"{place}.{parameter}")]
        else:
            recall = self.entry[self.index]["recall"]
            width = [
                Option("audit", self.audit_on(split)),
                Option(None, self.width, f"{place}.{parameter}"),
                Option("recall", recall, f"{place}.recall"),
            ]
        return [Option("kind", self.index), *width]

    @property
    def kind(self) -> str:
        """Name the kind of the index."""
        return self.index

    def opened_width(self, model: str) -> float:
        """Width of a searcher's searches: the system's own, or the one that its audit chooses.

        :param model: fingerprint of what made the vectors.
        :raises InputError: as `audited_width` does.
        """
        from cort.retrieval.audits import audited_width

        if not self.chosen_by_audit():
            return float(self.width)
        return audited_width(self.audit_on(""), self.index, model, self.entry[self.index]["recall"])

    def files(self) -> Iterator[str]:
        """Yield the index and the audit."""
        yield self.index_folder() + "meta.json"
        if self.chosen_by_audit():
            yield self.audit_on("")
