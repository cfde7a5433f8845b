"""Find queries that splits share, and refuse those that systems are both trained and evaluated on.

A query is in both splits if both judge its id, or if both have its text, ignoring case, with a passage that is relevant
in both. Other queries with the same id or text are only counted: different questions may share words.

Reads:  queries and qrels of splits, as `cort.split` writes them
Writes: leakage.json: for each pair, how many queries they share (a list of `cort.evaluation.leakage.Shared`)
Usage:  python -m cort.leakage --splits train validation test --queries train.parquet validation.parquet test.parquet
            --qrels train.qrels.parquet validation.qrels.parquet test.qrels.parquet
            --pairs train=validation train=test validation=test --apart train=test --output leakage.json
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from cort.evaluation.leakage import Shared, Split, compare_queries, describe
from cort.evaluation.values import check_named
from cort.formats.artifacts import write_artifact
from cort.system import cli
from cort.system.errors import InputError, input_error, shorten
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)


@options_class
class Options:
    """Options of this stage."""

    splits: tuple[str, ...] = required("NAME", "names of the splits, in the order of the files")
    queries: tuple[str, ...] = required("PARQUET", "a table of queries per split")
    qrels: tuple[str, ...] = required("PARQUET", "a table of judgements per split")
    pairs: tuple[str, ...] = required("FIRST=SECOND", "splits to compare")
    apart: tuple[str, ...] = optional((), "pairs that may not share a query", "FIRST=SECOND")
    output: str = required("JSON")


def _pairs(option: str, texts: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [(first, second) for first, _, second in (text.partition("=") for text in texts)]
    for text, pair in zip(texts, pairs, strict=True):
        if pair[0] == pair[1] or not {*pair} <= {*known}:
            expected = f"two of {', '.join(known)}, joined by ="
            raise input_error(option, shorten(text), expected, "fix the names")
    return pairs


def _refusal(shared: Shared) -> str:
    found = f"{shared.same} of {shared.queries} queries also in {shared.first}, e.g. {shorten(shared.example or '')}"
    expected = f"none, because systems trained on {shared.first} are evaluated on them"
    fix = f"name other queries, or leave these out by `without: {shared.second}` in {shared.first}"
    return str(input_error(f"splits.{shared.second}", found, expected, fix))


def stage(options: Options) -> None:
    """Read, compare, refuse or write."""
    check_named(options.splits, {"--queries": options.queries, "--qrels": options.qrels}, "split")
    pairs = _pairs("--pairs", options.pairs, options.splits)
    apart = _pairs("--apart", options.apart, options.splits)
    files = zip(options.splits, options.queries, options.qrels, strict=True)
    splits = {name: Split(name, queries, qrels) for name, queries, qrels in files}
    compared = {pair: compare_queries(splits[pair[0]], splits[pair[1]]) for pair in dict.fromkeys([*pairs, *apart])}
    if refused := [_refusal(shared) for pair, shared in compared.items() if shared.same and pair in apart]:
        raise InputError("\n".join(refused))
    for text in filter(None, map(describe, compared.values())):
        log.warning("%s", text)
    write_artifact(options.output, list(compared.values()))
    log.info("%d pairs of splits compared", len(compared))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
