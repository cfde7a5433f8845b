"""Names of retrieval measures as in ir_measures, and their names in trec_eval. Imports no numerical library."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cort.runtime.errors import input_error, shorten

# trec_eval's name of each measure, over the whole ranking and with a cutoff; None if there is no such measure.
TREC_NAMES: Mapping[str, tuple[str | None, str | None]] = {
    "RR": ("recip_rank", "recip_rank"),
    "nDCG": ("ndcg", "ndcg_cut.{}"),
    "R": (None, "recall.{}"),
    "AP": ("map", "map_cut.{}"),
    "P": (None, "P.{}"),
    "Success": (None, "success.{}"),
    # Computed by this project; trec_eval lacks them.
    "Judged": (None, ""),
    "R_cap": (None, ""),
}
JUDGED = "Judged"
JUDGED_ONLY = "(judged_only=True)"
MEASURE = re.compile(rf"([A-Za-z_]+)({re.escape(JUDGED_ONLY)})?(?:@([1-9][0-9]{{0,8}}))?")
KNOWN = "RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, Success@k, R_cap@k or Judged@k with k from 1"


class Measure(NamedTuple):
    """A measure: its name, the request to trec_eval, any cutoff, and whether unjudged documents are removed.

    The request is empty for Judged@k and R_cap@k, which trec_eval does not have.
    """

    name: str
    request: str
    cut: int | None
    judged_only: bool


def parse_measures(names: Sequence[str]) -> list[Measure]:
    """Parse measure names, in order.

    :raises InputError: names every unknown and every repeated measure.
    """
    measures = {name: parse_measure(name) for name in names}
    unknown = [name for name, measure in measures.items() if measure is None]
    if unknown or not names:
        found = ", ".join(map(shorten, unknown)) or "no measure"
        raise input_error("measures", found, KNOWN, "fix the names (upper and lower case matter)")
    repeated = [name for position, name in enumerate(names) if name in names[:position]]
    if repeated:
        found = ", ".join(map(shorten, repeated)) + " again"
        raise input_error("measures", found, "each measure once", "drop the repetition")
    return [measure for measure in measures.values() if measure is not None]


def parse_measure(name: str) -> Measure | None:
    """Parse the name of a measure; None if there is no such measure."""
    match = MEASURE.fullmatch(name)
    kind, judged_only, digits = match.groups() if match else ("", None, None)
    uncut, with_cut = TREC_NAMES.get(kind, (None, None))
    request, cut = (with_cut, int(digits)) if digits else (uncut, None)
    if request is None or (not request and judged_only):
        return None
    return Measure(name, request.format(cut), cut, judged_only is not None)


def needed_depth(measure: str, depth: int, aggregate: str = "none") -> int:
    """Return how many of `depth` results a measure depends on."""
    [parsed] = parse_measures([measure])
    return min(depth, parsed.cut or depth) if aggregate == "none" and not parsed.judged_only else depth
