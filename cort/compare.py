"""Compare pairs of systems on the queries of one split: intervals, tests, verdicts, list lengths.

Each system is compared with the baseline, with its parts (`--parts`), with its state before training (`--starts`), and
with systems that papers compare it with (`--contrasts`). For each measure, the output has means and differences with
bootstrap percentile intervals (paired: both systems on the same resampled queries), and the p-values of the paired
randomisation test, plain and corrected by Holm's method. The comparisons with the baseline are one family, all others a
second, for each measure by itself. A difference is significant, a WIN or a LOSS, if its corrected p-value is at most
alpha.

Reads:  per_query.parquet and recall.csv of every system, as `cort.evaluate` writes them; queries.parquet
Writes: comparison.json (`cort.evaluation.comparisons.Comparisons`); a list length is the smallest depth at which a
        system has at least the recall of the baseline's longest list;
        comparison.csv: the comparisons as a table;
        queries.csv: the largest gains and losses of each system over the baseline by each measure, with links to the
        explorer if `--explorer` is given
Usage:  python -m cort.compare --baseline bm25 --systems bm25 cort both --parts both=cort both=bm25
            --per-query bm25.parquet cort.parquet both.parquet --recall bm25.csv cort.csv both.csv
            --queries queries.parquet --split dev --seed 42 --output comparison.json --output-table comparison.csv
            --output-queries queries.csv
"""

import logging
import sys
from dataclasses import asdict, astuple, fields
from typing import Annotated

from cort.config.evaluation import Evaluation
from cort.config.fields import Seed
from cort.evaluation.comparisons import (
    Comparison,
    Comparisons,
    Pair,
    Tests,
    compare,
    largest_differences,
    list_lengths,
)
from cort.evaluation.options import SplitOptions
from cort.evaluation.values import check_named, read_recall, read_values, refuse_unlike
from cort.formats import tables
from cort.formats.artifacts import csv_text, write_artifact
from cort.reporting.format import address, verdict_lines
from cort.runtime import cli
from cort.runtime.files import write_text
from cort.runtime.sections import CsvFile, HtmlFile, Maybe, Metavar, ParquetFile, Several, Text, same_as

log = logging.getLogger(__name__)


class Options(SplitOptions):
    """Options of this stage."""

    baseline: Text
    """One of the systems."""
    systems: Several[Text]
    """Names of all systems, in the order of the files."""
    parts: Several[Annotated[Text, Metavar("SYSTEM=PART")]] = ()
    """A system and one of its parts."""
    starts: Several[Annotated[Text, Metavar("SYSTEM=START")]] = ()
    """A system and its state before training."""
    contrasts: Several[Annotated[Text, Metavar("SYSTEM=OTHER")]] = ()
    """Further comparisons."""
    per_query: Several[ParquetFile]
    """Values of every query, a file per system."""
    recall: Several[CsvFile]
    """Recall at every depth, a file per system."""
    queries: ParquetFile
    """All queries of the split."""
    confidence: float = same_as(Evaluation, "confidence")
    resamples: int = same_as(Evaluation, "resamples")
    alpha: float = same_as(Evaluation, "alpha")
    seed: int = same_as(Seed, "seed")
    """Of the bootstrap and the randomisation test."""
    explorer: Maybe[HtmlFile] = None
    """Page of the explorer, relative to the table of queries."""
    output_table: CsvFile
    """The comparisons as a table."""
    output_queries: CsvFile
    """Queries with the largest differences."""


def _pairs(options: Options) -> list[Pair]:
    """List the pairs to compare, each once: all with the baseline, then others, in the order of the systems."""
    others = [name for name in options.systems if name != options.baseline]
    pairs = {(name, options.baseline): Pair(name, options.baseline, "baseline") for name in others}
    for relation in ("part", "start", "contrast"):
        for text in getattr(options, f"{relation}s"):
            system, _, other = text.partition("=")
            pairs.setdefault((system, other), Pair(system, other, relation))
    return sorted(pairs.values(), key=lambda pair: (pair.family, options.systems.index(pair.system)))


def stage(options: Options) -> None:
    """Compare all pairs, and write the comparisons as JSON and tables."""
    check_named(options.systems, {"--per-query": options.per_query, "--recall": options.recall})
    pairs = _pairs(options)
    values = [read_values(path) for path in options.per_query]
    refuse_unlike(options.per_query, values)
    systems = dict(zip(options.systems, values, strict=True))
    recall = dict(zip(options.systems, map(read_recall, options.recall), strict=True))
    texts = tables.read_queries(options.queries)
    tests = Tests(options.confidence, options.resamples, options.alpha, options.seed)
    compared = Comparisons(
        split=options.split,
        baseline=options.baseline,
        queries=len(values[0].query_ids),
        **asdict(tests),
        comparisons=compare(systems, pairs, tests),
        list_lengths=list_lengths(recall, options.baseline),
    )
    columns = [field.name for field in fields(Comparison)]
    write_text(options.output_table, csv_text(columns, map(astuple, compared.comparisons)))
    columns = ["system", "measure", "query_id", "query", "baseline", "value", "difference", "explorer"]
    page, differences = options.explorer, largest_differences(systems, options.baseline, texts)
    rows = [(*row, page and address(page, row[0], options.baseline, measure=row[1], q=row[2])) for row in differences]
    write_text(options.output_queries, csv_text(columns, rows))
    write_artifact(options.output, compared)
    for line in verdict_lines(compared):
        log.info("%s", line)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
