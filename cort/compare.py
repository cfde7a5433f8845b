"""Compare systems with a baseline on the queries of one split: intervals, tests, wins and losses, and list lengths.

For each measure: the means with their bootstrap percentile intervals; the difference with its interval (paired: both
systems on the same drawn queries); p-values of the paired t-test and of the paired randomisation test, as they are and
corrected by Holm's method. A family of tests is one kind of test of one measure on this split, over all systems but the
baseline. A difference is significant if its corrected p-value of the randomisation test is at most alpha.

Reads:  per_query.parquet and recall.csv of every system, as `cort.evaluate` writes them; queries.parquet
Writes: comparison.json {"split", "baseline", "queries", "confidence", "resamples", "alpha", "seed",
        "comparisons": [...], "list_lengths": [...]}; a list length is the smallest depth at which the recall of a
        system is at least that of the baseline's longest list;
        comparison.csv: the comparisons as a table;
        queries.csv: the largest gains and losses of each system and measure
Usage:  python -m cort.compare --baseline bm25 --systems bm25 cort --per-query bm25.parquet cort.parquet
            --recall bm25.csv cort.csv --queries queries.parquet --split dev --seed 42 --output comparison.json
            --output-table comparison.csv --output-queries queries.csv
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cort.evaluation.measures import mean
from cort.evaluation.significance import Matrix, bootstrap_means, holm, interval, quantize, randomization_test, t_test
from cort.formats import tables
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text

log = logging.getLogger(__name__)

LARGEST = 10
"""Gains, and losses, listed per system and measure."""
REBUILD = "delete the file and build it again"


@dataclass(frozen=True)
class Values:
    """What a system reaches: ``values[i, j]`` is that of query i by measure j."""

    query_ids: list[str]
    measures: list[str]
    values: Matrix


@dataclass(frozen=True)
class Comparison:
    """One system against the baseline by one measure; an interval is from `low` to `high`.

    `t_test` and `randomization_test` are p-values, `_holm` those corrected; None where a test is not defined. `won`,
    `tied` and `lost` count queries.
    """

    system: str
    measure: str
    mean: float
    mean_low: float
    mean_high: float
    baseline_mean: float
    baseline_low: float
    baseline_high: float
    difference: float
    difference_low: float
    difference_high: float
    t_test: float | None
    t_test_holm: float | None
    randomization_test: float
    randomization_test_holm: float | None
    significant: bool
    won: int
    tied: int
    lost: int


@dataclass(frozen=True)
class ListLength:
    """`depth` is the shortest list of a system with at least the recall of the baseline's longest; None if none has."""

    system: str
    depth: int | None
    recall: float | None
    baseline_depth: int
    baseline_recall: float


def read_values(path: str | Path) -> Values:
    """Read per-query values and check that every query has every measure."""
    table = tables.read_table(path, tables.PER_QUERY)
    queries, measures = (table[name].combine_chunks().dictionary_encode() for name in ("query_id", "measure"))
    shape = len(queries.dictionary), len(measures.dictionary)
    rows = np.arange(table.num_rows)
    whole = table.num_rows == shape[0] * shape[1] > 0
    if not whole or (queries.indices.to_numpy() * shape[1] + measures.indices.to_numpy() != rows).any():
        raise input_error(path, f"{table.num_rows} rows", "every measure of every query, in one order", REBUILD)
    values = table["value"].to_numpy().reshape(shape)
    return Values(queries.dictionary.to_pylist(), measures.dictionary.to_pylist(), values)


def read_recall(path: str | Path) -> list[float]:
    """Read recall at depths 1, 2, ..."""
    with open(path, newline="", encoding="utf-8") as handle:
        rows = list(csv.reader(handle))
    try:
        if rows[:1] != [["depth", "recall"]] or [int(row[0]) for row in rows[1:]] != list(range(1, len(rows))):
            raise ValueError
        return [float(row[1]) for row in rows[1:]]
    except (ValueError, IndexError):
        raise input_error(path, "another table", "the columns depth and recall, depths from 1 on", REBUILD) from None


def compare(
    systems: dict[str, Values], baseline: str, *, confidence: float, resamples: int, alpha: float, seed: int
) -> list[Comparison]:
    """Compare every other system with the baseline by every measure, in the order of the systems."""
    names = [name for name in systems if name != baseline]
    measures = systems[baseline].measures
    base = systems[baseline].values
    values = np.stack([base, *(systems[name].values for name in names)], axis=1)
    drawn = bootstrap_means(values.reshape(len(base), -1), resamples, seed).reshape(resamples, *values.shape[1:])
    bounds = interval(drawn, confidence)
    bounds_of_difference = interval(drawn[:, 1:] - drawn[:, :1], confidence)
    units, _ = quantize(values[:, 1:] - values[:, :1])
    flat = units.reshape(len(base), -1)
    shape = units.shape[1:]
    by_signs = randomization_test(flat, resamples, seed).reshape(shape) if names else np.empty(shape)
    by_t = np.array(t_test(flat), dtype=object).reshape(shape)
    found = []
    for column, measure in enumerate(measures):
        by_t_holm, by_signs_holm = holm(by_t[:, column].tolist()), holm(by_signs[:, column].tolist())
        for row, name in enumerate(names):
            won, tied, lost = (int((np.sign(units[:, row, column]) == sign).sum()) for sign in (1, 0, -1))
            low, high = bounds[:, 1 + row, column].tolist()
            baseline_low, baseline_high = bounds[:, 0, column].tolist()
            difference_low, difference_high = bounds_of_difference[:, row, column].tolist()
            reached, before = mean(systems[name].values[:, column]), mean(base[:, column])
            corrected = by_signs_holm[row]
            found.append(
                Comparison(
                    system=name,
                    measure=measure,
                    mean=reached,
                    mean_low=low,
                    mean_high=high,
                    baseline_mean=before,
                    baseline_low=baseline_low,
                    baseline_high=baseline_high,
                    difference=reached - before,
                    difference_low=difference_low,
                    difference_high=difference_high,
                    t_test=by_t[row, column],
                    t_test_holm=by_t_holm[row],
                    randomization_test=float(by_signs[row, column]),
                    randomization_test_holm=corrected,
                    significant=corrected is not None and corrected <= alpha,
                    won=won,
                    tied=tied,
                    lost=lost,
                )
            )
    return sorted(found, key=lambda one: names.index(one.system))


def list_lengths(recall: dict[str, list[float]], baseline: str) -> list[ListLength]:
    """Find for every other system the shortest list with at least the recall of the baseline's longest."""
    wanted = recall[baseline][-1] if recall[baseline] else 0.0
    found = []
    for name, values in recall.items():
        if name != baseline:
            depth = next((k for k, value in enumerate(values, start=1) if value >= wanted), None)
            reached = None if depth is None else values[depth - 1]
            found.append(ListLength(name, depth, reached, len(recall[baseline]), wanted))
    return found


def largest_differences(
    systems: dict[str, Values], baseline: str, texts: dict[str, str]
) -> list[tuple[str, str, str, str, float, float, float]]:
    """List the queries with the largest gains, then those with the largest losses, of each system and measure."""
    base = systems[baseline]
    rows = []
    for name, one in systems.items():
        if name == baseline:
            continue
        units, _ = quantize(one.values - base.values)
        for column, measure in enumerate(one.measures):
            for query in _extremes(units[:, column]):
                query_id = one.query_ids[query]
                before, after = float(base.values[query, column]), float(one.values[query, column])
                rows.append((name, measure, query_id, texts.get(query_id, ""), before, after, after - before))
    return rows


def _extremes(units: npt.NDArray[np.float64]) -> list[int]:
    gains = [row for row in np.argsort(-units, kind="stable").tolist() if units[row] > 0]
    losses = [row for row in np.argsort(units, kind="stable").tolist() if units[row] < 0]
    return gains[:LARGEST] + losses[:LARGEST]


def refuse_unlike(files: Sequence[str], values: Sequence[Values]) -> None:
    """Check that all systems were measured on the same queries by the same measures."""
    for path, one in zip(files, values, strict=True):
        for what, found, expected in (
            ("queries", one.query_ids, values[0].query_ids),
            ("measures", one.measures, values[0].measures),
        ):
            if found != expected:
                raise input_error(
                    path,
                    f"{len(found)} {what}, others than those of {files[0]}",
                    f"the same {what} in the same order",
                    "measure all systems on the same split by the same measures",
                )


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.compare", __doc__)
    add = parser.add_argument
    add("--baseline", required=True, metavar="NAME", help="one of the systems")
    add("--systems", required=True, nargs="+", metavar="NAME", help="names of all systems, in the order of the files")
    add("--per-query", required=True, nargs="+", metavar="PARQUET", help="values of every query, a file per system")
    add("--recall", required=True, nargs="+", metavar="CSV", help="recall at every depth, a file per system")
    add("--queries", required=True, metavar="PARQUET", help="all queries of the split")
    add("--split", required=True, metavar="NAME", help="written into the output")
    add("--confidence", type=float, default=0.95, metavar="P", help="chance that an interval holds the mean")
    add("--resamples", type=int, default=10_000, metavar="N", help="of the bootstrap, and of the randomisation test")
    add("--alpha", type=float, default=0.05, metavar="P", help="largest corrected p-value that is significant")
    add("--seed", type=int, required=True, metavar="N", help="of both")
    add("--output", required=True, metavar="JSON")
    add("--output-table", required=True, metavar="CSV", help="the comparisons as a table")
    add("--output-queries", required=True, metavar="CSV", help="queries with the largest differences")
    return parser


def check_options(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other or make no sense."""
    for option, files in (("--per-query", args.per_query), ("--recall", args.recall)):
        if len(files) != len(args.systems):
            expected = f"{len(args.systems)}, one per system"
            raise input_error(option, f"{len(files)} files", expected, "name a file for each system, in their order")
    repeated = [name for position, name in enumerate(args.systems) if name in args.systems[:position]]
    if repeated:
        raise input_error("--systems", f"{shorten(repeated[0])} twice", "each system once", "drop one")
    if args.baseline not in args.systems:
        expected = f"one of {', '.join(args.systems)}"
        raise input_error("--baseline", shorten(args.baseline), expected, "name a system that is compared")
    for option, value in (("--confidence", args.confidence), ("--alpha", args.alpha)):
        if not 0 < value < 1:
            raise input_error(option, str(value), "a number between 0 and 1", "fix the value")
    if args.resamples < 1:
        raise input_error("--resamples", str(args.resamples), "1 or more", "fix the value")


def stage(args: argparse.Namespace) -> None:
    """Read, compare, write."""
    check_options(args)
    values = [read_values(path) for path in args.per_query]
    refuse_unlike(args.per_query, values)
    systems = dict(zip(args.systems, values, strict=True))
    recall = {name: read_recall(path) for name, path in zip(args.systems, args.recall, strict=True)}
    queries = tables.read_table(args.queries, tables.QUERIES)
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    settings = {name: getattr(args, name) for name in ("confidence", "resamples", "alpha", "seed")}
    found = compare(systems, args.baseline, **settings)
    summary = {
        "split": args.split,
        "baseline": args.baseline,
        "queries": len(values[0].query_ids),
        **settings,
        "comparisons": [asdict(one) for one in found],
        "list_lengths": [asdict(one) for one in list_lengths(recall, args.baseline)],
    }
    header = [field.name for field in fields(Comparison)]
    write_text(args.output_table, _csv(header, (asdict(one).values() for one in found)))
    header = ["system", "measure", "query_id", "query", "baseline", "value", "difference"]
    write_text(args.output_queries, _csv(header, largest_differences(systems, args.baseline, texts)))
    write_text(args.output, json.dumps(summary, indent=2) + "\n")
    significant = sum(one.significant for one in found)
    log.info("%d queries, %d comparisons, %d of them significant", summary["queries"], len(found), significant)


def _csv(header: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())
