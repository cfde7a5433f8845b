"""What all classes of systems have in common; each is in a file of this package, and listed in `registry.py`.

A class says everything about its systems: keys, checks, what runs are made from, how to answer and explain a query.
Modules that load torch or numpy are imported where they are used: the workflow imports this package, too.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from os.path import dirname
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cort.config import paths
from cort.config.entries import Config
from cort.config.lexical import GridSearch
from cort.config.systems import WHOLE, Folds, Reduced
from cort.runtime.errors import check_name
from cort.runtime.sections import Section, keys_of, plain
from cort.systems.results import Results

if TYPE_CHECKING:
    from cort.formats.records import Ranking
    from cort.systems.live import Batch, Case, Opening, Reason, Retriever, Rows


class LuceneIndex(NamedTuple):
    """An index that a searcher opens, by its name in the config.

    :ivar form: how its texts were cleaned, or what it has instead of texts, and their language.
    """

    name: str
    manifest: str
    form: tuple[str, str]


class System(ABC):
    """A system of an experiment: one run per split, made in the way of its class.

    :cvar Settings: the keys it takes; the first one tells its class, or one of the classes that share this key.
    :cvar rule: name of the rule that makes its runs.
    :cvar noun: what messages call what its first key names.
    :cvar merges: whether it merges rankings and adds nothing of its own.
    :cvar batches: whether several queries are searched faster together.
    :cvar divisible: whether its vectors can be divided among GPUs.
    :cvar searchable: whether it can rank any query.
    :cvar any_depth: whether `cort.negatives` can make its runs, of any depth.
    :cvar tuned_paths: of what is tuned, and of what is tuned by folds; `tuned_option` is the option for this file.
    :ivar results: settings, splits and files of its experiment.
    :ivar entry: what the config says of it: its `Settings`.
    """

    Settings: ClassVar[type[Section]]
    rule: ClassVar[str]
    noun: ClassVar[str] = ""
    merges: ClassVar[bool] = False
    batches: ClassVar[bool] = True
    divisible: ClassVar[bool] = False
    searchable: ClassVar[bool] = True
    any_depth: ClassVar[bool] = False
    tuned_paths: ClassVar[tuple[str, str]] = (paths.WEIGHTS, paths.FOLD_WEIGHTS)
    tuned_option: ClassVar[str] = "tuned"

    entry: Section

    def __init__(self, results: Results, name: str, entry: Mapping[str, Any]) -> None:
        self.results, self.name = results, name
        # The values were validated with the config.
        self.entry = self.Settings.model_construct(**{key: entry[key] for key in self.key_names() if key in entry})

    @property
    def place(self) -> str:
        """Path of its entry in the config."""
        return f"systems.{self.name}"

    @classmethod
    def key(cls) -> str:
        """Name the key that tells the class."""
        return cls.key_names()[0]

    @classmethod
    @functools.cache
    def key_names(cls) -> tuple[str, ...]:
        """List the keys that it takes."""
        return tuple(keys_of(cls.Settings))

    @classmethod
    def takes(cls, entry: Mapping[str, Any], results: Results) -> bool:
        """Tell whether an entry, of which these keys are set, is of this class if it is of none before it."""
        return cls.key() in entry

    def parts(self) -> list[str]:
        """List the systems whose runs it is made from, in order."""
        return []

    def models(self) -> list[tuple[str, str]]:
        """List the models that it retrieves or re-ranks with, as (section, name)."""
        return []

    def lexical_index(self) -> str | None:
        """Name the term-based index that it searches."""
        return None

    def lucene_index(self) -> LuceneIndex | None:
        """Describe the index of Lucene that a searcher opens for it."""
        return None

    @property
    def reduced(self) -> Reduced:
        """Say how it makes vectors smaller."""
        return WHOLE

    def stored(self) -> Iterator[str]:
        """Yield the files and folders that hold what it searches; those of its parts are theirs."""
        if index := self.lucene_index():
            yield dirname(index.manifest)

    def approximate_index(self) -> tuple[str, str] | None:
        """Name the model and the type of the approximate index that it searches."""
        return None

    def chosen_by_audit(self) -> bool:
        """Tell whether an audit chooses how widely it searches."""
        return False

    def reranker(self) -> str | None:
        """Name the re-ranker that scores its candidates."""
        return None

    def fits_engines(self) -> bool:
        """Tell whether common search engines can do the same, if they can do what its parts do."""
        return False

    def splits(self) -> list[str]:
        """List the ranked splits that it may have runs for; its parts may have fewer."""
        return self.results.ranked_splits

    def published(self, split: str) -> tuple[str, str] | None:
        """Return the published run of a split that it has, and where the config names it."""
        return None

    def given_files(self) -> list[tuple[str, str]]:
        """List the files that the config names for all splits: where it does, and their paths."""
        return []

    # How its weights or parameters are tuned.

    @property
    def tune(self) -> str | Folds | GridSearch | None:
        """What its key `tune` says: a measure for validation queries, or settings; None if nothing is tuned."""
        return None

    @property
    def tune_place(self) -> str:
        """Path of this key in the config."""
        return f"{self.place}.tune"

    def learns(self) -> bool:
        """Tell whether its weights are tuned on validation queries."""
        return isinstance(self.tune, str)

    def folds(self) -> int:
        """Count the folds by which it is tuned on the queries that it ranks; 0 if it is not."""
        return (self.tune.folds or 0) if isinstance(self.tune, Folds | GridSearch) else 0

    def tuned_files(self, split: str = "") -> list[str]:
        """Name the file of what is tuned, if it is; by folds for a split, or for others by those of the first."""
        judged = self.results.evaluated_splits if self.folds() else []
        names = {"system": self.name, "lexical": self.lexical_index() or ""}
        names["split"] = split if split in judged else "".join(judged[:1])
        return [self.results.at(self.tuned_paths[bool(judged)], **names)] if self.tune else []

    def tuned(self, split: str) -> Config:
        """Give this file as an option; queries with judgements get what was tuned for their folds."""
        given = dict(zip([self.tuned_option], self.tuned_files(split), strict=False))
        return given | ({"folded": True} if self.folds() and split in self.results.evaluated_splits else {})

    def tuning(self) -> Config:
        """Give the options of the rule that tunes its weights; with folds the seed, too."""
        if isinstance(self.tune, Folds | GridSearch):
            return {**plain(self.tune), "seed": self.results.root.seed}
        return {"measure": self.tune}

    def describe_tuning(self) -> str:
        """Say what it is tuned for, and on which queries."""
        if isinstance(self.tune, Folds | GridSearch):
            return f"tuned for {self.tune.measure} by {self.tune.folds}-fold cross-validation on its own queries"
        return f"tuned for {self.tune} on validation"

    # Checks and descriptions.

    def fill(self, entry: Config) -> None:  # noqa: B027  # most classes have no such defaults
        """Add the defaults that depend on other sections to its entry of the completed config."""

    def check(self) -> Iterator[str]:
        """Yield a line for each mistake; the keys are those of its class."""
        return iter(())

    def kept(self) -> tuple[str, int] | None:
        """Give the number of candidates that its search keeps, and the key that says it, if no run can have more."""
        return None

    def check_name_of(self, key: str, known: Collection[str]) -> Iterator[str]:
        """Check the name that a key has."""
        return check_name(f"{self.place}.{key}", getattr(self.entry, key), known)

    @abstractmethod
    def describe(self) -> str:
        """Describe in a few words how its runs are made."""

    # How its runs are made.

    @abstractmethod
    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name the files that its rule makes a run from."""

    def options(self, split: str) -> Config:
        """Give the options of the stage that makes a run, but for the depth."""
        return {}

    # How a searcher answers single queries with it, and explains its answers.

    @property
    def method(self) -> str:
        """Name how it ranks, for pages and tables."""
        return self.key()

    @property
    def needs_all(self) -> bool:
        """Tell whether the first results depend on how many are retrieved."""
        return False

    def files(self) -> Iterator[str]:
        """Yield the files that a searcher opens for it, without those of its parts."""
        return iter(())

    def candidates(self) -> int:
        """Count the results that it needs from its parts at least."""
        return 0

    def retriever(self, opening: Opening) -> Retriever | None:
        """Open what encodes queries and ranks passages by vectors, if it does."""
        return None

    def search(self, batch: Batch, depth: int) -> list[Ranking]:
        """Rank passages for each query of a batch; only asked of a system without parts."""
        raise NotImplementedError

    def combine(self, batch: Batch, parts: Sequence[Sequence[Ranking]], depth: int) -> list[Ranking]:
        """Rank passages for each query from the rankings of the parts; only asked of a system with parts."""
        raise NotImplementedError

    def explain(self, case: Case) -> Reason:
        """Explain the rank of a passage; a class without an explanation of its own shows the ranks in its parts."""
        parts = [case.part(name) for name in self.parts()]
        rows: Rows = [[part.name, *part.place()] for part in parts]
        about = "The score follows from the rankings of the parts." if parts else "The score has no parts."
        reasons = [part.explain() for part in parts]
        return case.reason(about, columns=["part", "rank", "score"], rows=rows, parts=reasons)
