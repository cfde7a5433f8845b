"""A small part of each data set: real passages, queries and judgements with their ids, from a folder of samples.

The folder has `msmarco-sample`, `msmarco-meta` and `nfcorpus`, tables in the form of MS MARCO. Training and development
queries, which the samples lack, are words of a passage each. Everything depends on these files alone.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from cort.system.errors import input_error

Item = TypeVar("Item")
Texts = Mapping[str, str]
Judgement = tuple[str, str, int]

PASSAGES = 2_000
# Characters of passages that nobody judged; short ones, for models read them again and again.
FILLER = 250
TRAINING, DEVELOPMENT = 120, 1_020
# Queries with judgements of each file; how many more of 2020 nobody judged, as are all of eval.
JUDGED = {"devsmall": 5, "dl19": 3, "dl20": 3}
UNJUDGED, EVALUATION = 2, 2
# Numbers of the queries that are made here; MS MARCO's are below two million.
FIRST_MADE = 5_000_000
# Of NFCorpus and SciFact.
ASKED = {"train": 310, "dev": 30, "test": 30}
WORD = re.compile(r"[A-Za-z]{4,}")
QUERY_WORDS = 5
SEED = 42


@dataclass(frozen=True)
class Sample:
    """Passages by id, queries by file and id, judgements by file."""

    passages: Texts
    queries: Mapping[str, Texts]
    judgements: Mapping[str, Sequence[Judgement]]


def read_pairs(path: Path) -> dict[str, str]:
    """Read a file of `id TAB text`."""
    if not path.is_file():
        fix = "give the folder with the samples as --data"
        raise input_error(path, "no such file", "a table of a sample", fix)
    with open(path, encoding="utf-8") as file:
        rows = (line.rstrip("\r\n").split("\t", 1) for line in file)
        return {number: text for number, text in rows}


def read_judgements(path: Path) -> list[Judgement]:
    """Read a file of `query 0 passage grade`."""
    with open(path, encoding="utf-8") as file:
        rows = [line.split() for line in file]
    return [(query, passage, int(grade)) for query, _, passage, grade in rows]


@cache
def sample_msmarco(data: Path) -> Sample:
    """Take the judged passages of some queries of each track, and others up to `PASSAGES`."""
    folder = data / "msmarco-sample"
    collection = read_pairs(folder / "collection.tsv")
    queries, judgements = dict[str, Texts](), dict[str, Sequence[Judgement]]()
    for name, count in JUDGED.items():
        rows = [row for row in read_judgements(folder / f"qrels.{name}.tsv") if row[1] in collection]
        known = read_pairs(folder / f"queries.{name}.tsv")
        relevant = dict.fromkeys(query for query, _, grade in rows if grade > 1 or name == "devsmall")
        chosen = [query for query in relevant if query in known][:count]
        judgements[name] = [row for row in rows if row[0] in chosen]
        queries[name] = {query: known[query] for query in chosen}
    topics = read_pairs(data / "msmarco-meta" / "topics.dl20.txt").items()
    asked = {query for query, _, _ in read_judgements(folder / "qrels.dl20.tsv")}
    queries["dl20"] = {**queries["dl20"], **dict(_first((one for one in topics if one[0] not in asked), UNJUDGED))}
    judged = {passage for rows in judgements.values() for _, passage, _ in rows}
    short = (number for number, text in collection.items() if len(text) < FILLER and number not in judged)
    wanted = judged | {number for number, _ in zip(short, range(PASSAGES - len(judged)), strict=False)}
    passages = {number: text for number, text in collection.items() if number in wanted}
    made = make_queries(passages, TRAINING + DEVELOPMENT)
    numbers = list(made)
    for name, some in {"train": numbers[:TRAINING], "dev": numbers[TRAINING:]}.items():
        queries[name] = {number: made[number][0] for number in some}
        judgements[name] = [(number, made[number][1], 1) for number in some]
    known = read_pairs(data / "msmarco-meta" / "queries.eval.small.tsv")
    queries["evalsmall"] = dict(list(known.items())[:EVALUATION])
    return Sample(passages, queries, judgements)


def make_queries(passages: Texts, count: int) -> dict[str, tuple[str, str]]:
    """Make queries of words of a passage each: (words, id of that passage) by number."""
    generator = random.Random(SEED)  # noqa: S311 - texts, not secrets
    able = [number for number, text in passages.items() if len(WORD.findall(text)) > 2 * QUERY_WORDS]
    chosen = generator.sample(able, count)
    return {
        str(FIRST_MADE + row): (" ".join(generator.sample(WORD.findall(passages[passage]), QUERY_WORDS)), passage)
        for row, passage in enumerate(chosen)
    }


@cache
def sample_nfcorpus(data: Path, passages: int = 1_000) -> Sample:
    """Take the first queries of each file of NFCorpus with relevant passages among its first ones."""
    folder = data / "nfcorpus"
    kept = dict(_first(read_pairs(folder / "collection.tsv").items(), passages))
    asked, judged = dict[str, Texts](), dict[str, Sequence[Judgement]]()
    for name, count in ASKED.items():
        rows = [row for row in read_judgements(folder / f"qrels.{name}.tsv") if row[1] in kept and row[2] > 0]
        chosen = list(_first(dict.fromkeys(query for query, _, _ in rows), count))
        texts = read_pairs(folder / f"queries.{name}.tsv")
        asked[name] = {query: texts[query] for query in chosen}
        judged[name] = [row for row in rows if row[0] in asked[name]]
    return Sample(kept, asked, judged)


def _first(items: Iterable[Item], count: int) -> list[Item]:
    return [item for item, _ in zip(items, range(count), strict=False)]
