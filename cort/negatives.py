"""Search all training queries with a system, and keep only what a model will draw as negatives.

Runs of training queries are stored whole, down to `training_depth`. A model that draws from deeper ranks does not need
them: the queries are searched in blocks, in a folder that is deleted, with the same stages that make other runs. What
is left of the run has its ranks; `triples` and `pairs` give the same examples as from the whole one.

Reads:  what the system and its parts search, and a qrels table
Writes: run.trec, with gaps
Usage:  python -m cort.negatives --searches JSON --qrels qrels.train.parquet --first-rank 1 --last-rank 1000 --epochs 8
            --tag NAME --output run.trec
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import Field, TypeAdapter

from cort.config.fields import Seed
from cort.config.models import Pairs as PairSettings
from cort.formats import tables
from cort.formats.pairs import Pairs
from cort.formats.runs import Run, read_run, write_runs
from cort.runtime import cli
from cort.runtime.command_line import parse_options
from cort.runtime.files import temporary_folder
from cort.runtime.sections import ParquetFile, Text, Threads, TrecFile, same_as
from cort.training.draws import DrawOptions, kept

log = logging.getLogger(__name__)

# Their results, a thousand each, fit into the memory several times.
QUERIES_AT_ONCE = 16_384
#: rules that make runs -> modules of their stages
STAGES = {
    "bm25": "cort.retrieval.retrieve_bm25",
    "retrieve": "cort.retrieval.retrieve_exact",
    "retrieve_impacts": "cort.retrieval.retrieve_impacts",
    "retrieve_tokens": "cort.retrieval.retrieve_tokens",
    "fuse": "cort.fuse",
}


@dataclass(frozen=True)
class Search:
    """How a system makes its run.

    :ivar queries: file of the queries of a system that searches.
    :ivar runs: the systems that it is made from.
    """

    rule: str
    options: list[str]
    queries: str = ""
    runs: tuple[str, ...] = ()


class Options(DrawOptions):
    """Options of this stage."""

    searches: Text
    """JSON: system -> its rule, options, queries, and the systems that it is made from; the first one is searched."""
    qrels: ParquetFile
    random: int = same_as(PairSettings, "random")
    positives: Literal["one", "all", "retrieved"] = same_as(PairSettings, "positives")
    seed: int = same_as(Seed, "seed")
    threads: Threads = 1
    memory_mb: int = Field(0, ge=0)
    """Memory, half of which may hold vectors."""
    tag: Text
    """Last field of each line."""
    output: TrecFile


def read_queries(path: str) -> pa.Table:
    """Read texts or impacts (parquet), or map a shard of vectors or tokens."""
    if path.endswith(".arrow"):
        return tables.open_arrow(Path(path), "shard of queries", "delete it and let it be built again")
    return tables.open_parquet(path).read()


def make_run(searches: Mapping[str, Search], system: str, start: int, folder: Path, options: Options) -> Path:
    """Make a system's run of the block of queries that begins at `start`; before it, those that it is made from."""
    own, run = searches[system], folder / f"{system}.trec"
    if run.exists():
        return run
    words = [*own.options, "--tag", system, "--output", str(run)]
    if own.runs:
        words += ["--runs", *(str(make_run(searches, part, start, folder, options)) for part in own.runs)]
    else:
        table, queries = read_queries(own.queries), folder / f"{system}.{Path(own.queries).name}"
        write = tables.write_arrow if queries.suffix == ".arrow" else tables.write_table
        write(queries, table.slice(start, QUERIES_AT_ONCE))
        words += ["--queries", str(queries), "--threads", str(options.threads)]
        words += ["--memory-mb", str(options.memory_mb)] if own.rule == "retrieve" else []
    module = import_module(STAGES[own.rule])
    module.stage(parse_options(module.Options, cli.parser_of(module.Options).parse_args(words)))
    return run


def blocks(options: Options) -> Iterator[Run]:
    """Search block by block; yield what is kept of each run."""
    searches = TypeAdapter(dict[str, Search]).validate_json(options.searches)
    count = max(len(read_queries(one.queries)) for one in searches.values() if one.queries)
    draws = options.last_rank if options.positives == "retrieved" else options.negatives - options.random
    used = options.model_copy(update={"negatives": draws})
    judged = Pairs.of(tables.read_table(options.qrels, tables.QRELS))
    for start in range(0, count, QUERIES_AT_ONCE):
        with temporary_folder(options.output) as folder:
            run = read_run(make_run(searches, next(iter(searches)), start, folder, options))
        yield kept(run, judged, used, options.seed, options.positives == "all")


def stage(options: Options) -> None:
    """Search, keep what is drawn, and write it."""
    lines = write_runs(options.output, blocks(options), options.tag)
    log.info("%d results kept", lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
