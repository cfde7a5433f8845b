"""Options shared by several stages of retrieval, also by those that only merge runs."""

from pydantic import Field

from cort.config.fields import Depth
from cort.runtime.sections import JsonFile, Maybe, Section, Several, Text, Threads, TrecFile, same_as

HEAP_MB = 2000


class TermBased(Section):
    """An option that names systems which score documents by the terms that they share with the query."""

    term_based: Several[Text] = ()
    """Of the systems, those by whose scores documents without a term of the query get 0."""


class RunOptions(Section):
    """Options of stages that write a run."""

    depth: int = same_as(Depth, "depth")
    tag: Text
    """Last field of each line."""
    output: TrecFile


class JavaOptions(Section):
    """Options of stages that run Lucene."""

    threads: Threads = 1
    memory_mb: int = Field(HEAP_MB, ge=16)
    """Memory of Java (default: 2000)."""


class TunedOptions(Section):
    """Options of stages that take what `tune weights` chose."""

    tuned: Maybe[JsonFile] = None
    """Instead of fixed weights, what `tune weights` chose."""
    folded: bool = False
    """With what was tuned for the fold of each query."""
