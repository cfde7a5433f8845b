"""The width of an approximate search: given, by an audit, or its default."""

from __future__ import annotations

from cort.config.systems import Width
from cort.retrieval.audits import audited_width
from cort.retrieval.indexes import INDEXES, RECALL
from cort.retrieval.search_options import VectorSearchOptions
from cort.runtime.errors import input_error
from cort.runtime.sections import JsonFile, Maybe, same_as


class WidthOptions(VectorSearchOptions):
    """Options of commands that search an approximate index."""

    width: Maybe[float] = None
    """Of the search, without --audit (default: that of the key in a config)."""
    audit: Maybe[JsonFile] = None
    """Instead of --width: what `audit` wrote."""
    recall: float = same_as(Width, "recall", default=RECALL)


def choose_width(options: WidthOptions, index: str, model: str) -> float:
    """Return the width given as option, the one that suffices according to an audit, or the default.

    :param model: fingerprint of the model that made the vectors.
    :raises InputError: for both, or for a width that no search can have.
    """
    if options.audit is not None:
        if options.width is not None:
            raise input_error("--width", f"{options.width:g} beside --audit", "one of them", "leave one out")
        return audited_width(options.audit, index, model, options.recall)
    kind = INDEXES[index]
    width = kind.default if options.width is None else options.width
    if not kind.allows(width, options.reach) or width != kind.typed(width):
        number = "an integer" if isinstance(kind.default, int) else "a number"
        bound = f"{options.reach} (the depth) or more" if kind.counts else f"above {kind.above:g}"
        raise input_error("--width", f"{kind.parameter} {width:g}", f"{number}, {bound}", "change it")
    return width
