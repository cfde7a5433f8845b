"""Look for queries that splits share, and refuse those that systems learn from and are measured on.

A query is in both splits if both have judgements of its id, or if both have its text, without regard to case, with a
passage that is relevant in both. Others of the same id or text are counted: different questions may share words.

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
from dataclasses import dataclass

from cort.evaluation.leakage import Shared, Split, compare_queries, describe
from cort.evaluation.values import check_named
from cort.formats.artifacts import write_artifact
from cort.system import cli
from cort.system.errors import InputError, input_error, shorten
from cort.system.options import optional, required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    splits: tuple[str, ...] = required("NAME", "names of the splits, in the order of the files")
    queries: tuple[str, ...] = required("PARQUET", "a table of queries per split")
    qrels: tuple[str, ...] = required("PARQUET", "a table of judgements per split")
    pairs: tuple[str, ...] = required("FIRST=SECOND", "splits to compare")
    apart: tuple[str, ...] = optional((), "those of the pairs that may share no query", "FIRST=SECOND")
    output: str = required("JSON")


def _pairs(option: str, texts: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [(first, second) for first, _, second in (text.partition("=") for text in texts)]
    for text, pair in zip(texts, pairs, strict=True):
        if pair[0] == pair[1] or not {*pair} <= {*known}:
            expected = f"two of {', '.join(known)}, with = between them"
            raise input_error(option, shorten(text), expected, "fix the names")
    return pairs


def _refusal(one: Shared) -> str:
    found = f"{one.same} of {one.queries} queries that {one.first} has, too, e.g. {shorten(one.example or '')}"
    expected = f"none, as what is learnt from {one.first} would be measured by the same queries"
    fix = f"name other queries, or leave these out by `without: {one.second}` in {one.first}"
    return str(input_error(f"splits.{one.second}", found, expected, fix))


def stage(options: Options) -> None:
    """Read, compare, refuse or write."""
    check_named(options.splits, {"--queries": options.queries, "--qrels": options.qrels}, "split")
    pairs = _pairs("--pairs", options.pairs, options.splits)
    apart = _pairs("--apart", options.apart, options.splits)
    files = zip(options.splits, options.queries, options.qrels, strict=True)
    splits = {name: Split(name, queries, qrels) for name, queries, qrels in files}
    found = [compare_queries(splits[first], splits[second]) for first, second in dict.fromkeys([*pairs, *apart])]
    if refused := [_refusal(one) for one in found if one.same and (one.first, one.second) in apart]:
        raise InputError("\n".join(refused))
    for one in found:
        if text := describe(one):
            log.warning("%s", text)
    write_artifact(options.output, found)
    log.info("%d pairs of splits compared", len(found))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
