"""Look at a collection and its splits: a line for everything that is odd, and a table with its ids.

Queries of two splits are the same if they have the same text, ignoring case.

Reads:  passages.parquet; queries, qrels and oddities of splits, as `cort.split` writes them; counts of what was left
        out of the collection, as `cort.collection` writes them
Writes: inspection.json (a list of `cort.evaluation.inspection.Finding`), inspection.csv (kind, split, query_id, doc_id,
        other: an id that it is about)
Usage:  python -m cort.inspect --passages passages.parquet --splits train test
            --queries queries.train.parquet queries.test.parquet --qrels qrels.train.parquet qrels.test.parquet
            --oddities oddities.train.csv oddities.test.csv --counts imported.json --pairs train=test
            --apart train=test --own test --limits cort=128 --languages bm25=en --output inspection.json
            --output-ids inspection.csv
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from typing import Annotated

from cort.config.collection import Aggregation
from cort.evaluation import inspection
from cort.evaluation.inspection import Finding, Found, Row, Split
from cort.formats.artifacts import csv_text, read_artifact, read_csv, write_artifact
from cort.runtime import cli
from cort.runtime.files import write_text
from cort.runtime.sections import CsvFile, JsonFile, Maybe, Metavar, ParquetFile, Several, Text

log = logging.getLogger(__name__)

HEADER = ("kind", "split", "query_id", "doc_id", "other")


class Options(Aggregation):
    """Options of this stage."""

    passages: ParquetFile
    """The collection."""
    splits: Several[Text]
    """Names of the splits, in the order of the files."""
    queries: Several[ParquetFile]
    """A table of queries per split."""
    qrels: Several[ParquetFile]
    """A table of judgements per split."""
    oddities: Several[CsvFile]
    """What was odd in the files of each split."""
    counts: Maybe[JsonFile] = None
    """What was left out when the collection was read."""
    pairs: Several[Annotated[Text, Metavar("FIRST=SECOND")]] = ()
    """Splits to compare."""
    apart: Several[Annotated[Text, Metavar("FIRST=SECOND")]] = ()
    """Those of them of which systems learn from the first and are measured on the second."""
    own: Several[Text] = ()
    """Splits of which queries that are documents are not retrieved."""
    limits: Several[Annotated[Text, Metavar("NAME=N")]] = ()
    """Tokens of a passage that each encoder reads."""
    languages: Several[Annotated[Text, Metavar("NAME=CODE")]] = ()
    """Languages of term-based indexes."""
    output: JsonFile
    output_ids: CsvFile


def stage(options: Options) -> None:
    """Inspect, and write and log what is found."""
    findings, rows = list[Finding](), list[Row]()
    for one in _inspect(options):
        if isinstance(one, Finding):
            log.log(logging.WARNING if one.warns else logging.INFO, "%s", one.text)
            findings.append(one)
        else:
            rows.append(one)
    write_text(options.output_ids, csv_text(HEADER, rows))
    write_artifact(options.output, findings)


def _inspect(options: Options) -> Found:
    files = zip(options.splits, options.queries, options.qrels, strict=True)
    splits = {name: Split.read(name, *tables) for name, *tables in files}
    languages = dict(pair.split("=") for pair in options.languages)
    limits = {name: int(limit) for name, limit in (pair.split("=") for pair in options.limits)}
    passages = inspection.read_passages(options.passages, [*splits.values()], sorted(set(limits.values())))
    if options.counts:
        yield from inspection.describe_left_out(read_artifact(options.counts, dict[str, int]))
    yield from inspection.describe_passages(passages, limits, languages)
    for (name, split), oddities in zip(splits.items(), options.oddities, strict=True):
        yield from inspection.describe_queries(split)
        yield from _known(name, oddities)
        # Documents are not compared, only their passages.
        if options.aggregate == "none":
            yield from inspection.find_twins(split, passages.twins)
        yield from inspection.find_own(split, passages, name in options.own)
    for pair in options.pairs:
        first, _, second = pair.partition("=")
        yield from inspection.find_shared(splits[first], splits[second], pair in options.apart)


def _known(split: str, path: str) -> Found:
    """Repeat what was odd in the files of a split."""
    rows = [tuple(row.values()) for row in read_csv(path)]
    counts = Counter(kind for kind, _ in {(kind, doc_id or query_id) for kind, query_id, doc_id in rows})
    yield from (Finding(kind, f"{split}: {kind}: {count:,}") for kind, count in sorted(counts.items()))
    yield from ((kind, split, query_id, doc_id, "") for kind, query_id, doc_id in rows)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
