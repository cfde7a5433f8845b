"""Let a language model judge what systems retrieve: a pool of the top results of all, with grades from 0 to 3.

If passages are aggregated, each passage that counted for a document in some run is judged, and the document has the
best grade. An answer without a grade leaves its pair without a judgement.

Reads:  runs, queries and passages; answers of an endpoint (`cort.models.endpoint`)
Writes: the queries as BEIR .jsonl, judgements as TREC qrels, JSON of how often each grade was given
Usage:  python -m cort.judge --runs bm25.trec cort.trec --queries queries.parquet --passages passages.parquet --depth 10
            --model NAME --cache endpoint_cache/answers.sqlite --output-queries queries.jsonl --output-qrels qrels.tsv
            --output-counts counts.json
"""

import logging
import re
import sys
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa

from cort.config.collection import Aggregation, Judge, LanguageModel
from cort.formats.artifacts import write_artifact
from cort.formats.judgements import write_judged
from cort.formats.records import Qrel, Text
from cort.formats.runs import read_run
from cort.formats.tables import PASSAGES, read_queries, select_texts
from cort.models.endpoint import ask, refuse_nonsense
from cort.models.prompts import GRADE_PROMPT
from cort.retrieval.documents import group_passages
from cort.runtime import cli
from cort.runtime.sections import AnyFile, ParquetFile, Several, TrecFile, same_as

log = logging.getLogger(__name__)

# A grade that is not part of another number, a fraction or a range.
ALONE = re.compile(r"(?<![\d.,/-])[0-3](?![.,/-]?\d)")
NONE, UNJUDGED = -1, "not judged: no grade in the answer"


class Options(Aggregation, LanguageModel):
    """Options of this stage."""

    runs: Several[TrecFile]
    """Runs of passages."""
    queries: ParquetFile
    passages: ParquetFile
    depth: int = same_as(Judge, "depth")
    cache: AnyFile
    """File of answers."""
    output_queries: AnyFile
    """BEIR .jsonl to write."""
    output_qrels: AnyFile
    """TREC qrels to write."""
    output_counts: AnyFile
    """JSON of numbers of grades."""


def pooled(path: str, options: Options) -> Iterator[tuple[str, str, str]]:
    """Return (query_id, id of what is judged, doc_id of the passage that counted) of a run's top results."""
    run, passages, _ = group_passages(read_run(path), options.aggregate)
    kept = pa.array(run.ranks() <= options.depth)
    columns = (column.filter(kept).to_pylist() for column in (run.ids_of_queries(), run.doc_ids, passages))
    return zip(*columns, strict=True)


def grade_of(answer: str) -> int:
    """Return the only grade in an answer; `NONE` if there is none, or several."""
    grades = {*ALONE.findall(answer)}
    return int(grades.pop()) if len(grades) == 1 else NONE


def stage(options: Options) -> None:
    """Pool, ask and write."""
    queries = read_queries(options.queries)
    pool = sorted({pair for path in options.runs for pair in pooled(path, options)})
    log.info("%d runs, %d pairs of a query and a passage", len(options.runs), len(pool))
    texts = select_texts(options.passages, PASSAGES, [doc_id for _, _, doc_id in pool])
    pairs = [f"Query: {queries[query_id]}\n\nPassage:\n{texts[doc_id]}" for query_id, _, doc_id in pool]
    grades = [grade_of(answer) for answer in ask(GRADE_PROMPT, pairs, options, options.cache)]
    refuse_nonsense(grades.count(NONE), len(grades), "a grade from 0 to 3")
    best: dict[tuple[str, str], int] = {}
    for (query_id, judged, _), grade in zip(pool, grades, strict=True):
        best[query_id, judged] = max(grade, best.get((query_id, judged), NONE))
    counts = Counter(f"grade {grade}" if grade != NONE else UNJUDGED for grade in best.values())
    log.info("%s", ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())))
    write_judged(
        options.output_queries,
        options.output_qrels,
        (Text(*query) for query in queries.items()),
        (Qrel(*pair, grade) for pair, grade in best.items() if grade != NONE),
    )
    write_artifact(options.output_counts, dict(sorted(counts.items())))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
