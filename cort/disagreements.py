"""Find the queries on which two systems disagree most, with the passages that show why (Table 6 of the CoRT paper).

The disagreement of a query is the difference of the reciprocal ranks that the two runs give to their best-ranked
relevant passage (0 where none was retrieved). The queries on which either system is furthest ahead are kept.

Reads: two runs, the queries, the judgements and the passages (streamed; only the texts shown are kept).
Writes: disagreements.json (`cort.evaluation.disagreements.Disagreements`): the queries, the relevant passage and its
       two ranks, and the top passage of each system.
Usage: python -m cort.disagreements --first cort.trec --second bm25.trec --first-name cort --second-name bm25
       --split test --queries queries.parquet --qrels qrels.parquet --passages passages.parquet --number 5
       --output disagreements.json
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cort.evaluation.disagreements import Disagreements, compare_runs, largest, make_example
from cort.evaluation.measures import read_qrels
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run
from cort.formats.tables import PASSAGES, QUERIES, iter_batches
from cort.settings.collection import Split
from cort.settings.evaluation import Evaluation
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required
from cort.system.progress import track

log = logging.getLogger(__name__)


def select_texts(path: str | Path, schema: pa.Schema, ids: Iterable[str]) -> dict[str, str]:
    """Stream a table of (id, text) and keep the texts of `ids`; a missing id is refused."""
    wanted = pa.array(sorted(set(ids)), pa.string())
    name = schema.names[0]
    texts: dict[str, str] = {}
    for batch in track(iter_batches(path, schema), None, "batches read"):
        kept = batch.filter(pc.is_in(batch[name], value_set=wanted))
        texts.update(zip(kept[name].to_pylist(), kept["text"].to_pylist(), strict=True))
    if missing := [id_ for id_ in wanted.to_pylist() if id_ not in texts]:
        expected = "every id in the runs and judgements"
        raise input_error(path, f"no {name} {shorten(missing[0])}", expected, "name the matching file")
    return texts


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    first: str = required("RUN", "run of one system")
    second: str = required("RUN", "run of the other")
    first_name: str = required("NAME", "name of the first system")
    second_name: str = required("NAME", "name of the second system")
    queries: str = required("PARQUET")
    qrels: str = required("PARQUET")
    passages: str = required("PARQUET")
    split: str = required("NAME", "name of the split, written to the output")
    number: int = optional(Evaluation.number_of_disagreements, "examples per side", "N")
    relevance_level: int = optional(Split.relevance_level, "lowest grade that is relevant", "GRADE")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Compare the runs, fetch the texts of the largest disagreements, write them."""
    if options.number < 1:
        raise input_error("--number", str(options.number), "at least 1", "give how many examples to show per side")
    if options.first_name == options.second_name:
        again = f"{shorten(options.first_name)} again"
        raise input_error("--second-name", again, "two different names", "give each run its own")
    level = options.relevance_level
    qrels = read_qrels(options.qrels, level)
    first, second = read_run(options.first).by_query(), read_run(options.second).by_query()
    compared = list(compare_runs(first, second, qrels, level))
    chosen = largest(compared, options.number)
    queries = select_texts(options.queries, QUERIES, [one.query_id for one in chosen])
    doc_ids = [doc_id for one in chosen for doc_id in (one.doc_id, one.top_first, one.top_second) if doc_id is not None]
    passages = select_texts(options.passages, PASSAGES, doc_ids)
    examples = [make_example(one, qrels[one.query_id], level, queries[one.query_id], passages) for one in chosen]
    better_first = sum(one.advantage > 0 for one in compared)
    better = better_first, len(compared) - better_first
    names = options.split, options.first_name, options.second_name
    write_artifact(options.output, Disagreements(*names, len(qrels), *better, examples))
    log.info("systems disagree on %d of %d queries, %d examples written", len(compared), len(qrels), len(chosen))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
