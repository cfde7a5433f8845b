"""A small experiment for the explorer, full of markup, and what its data say."""

import base64
import json
import re
import zlib

import numpy as np
import pyarrow as pa

from cort.evaluation.values import write_values
from cort.formats.tables import PASSAGES, QRELS, QUERIES, write_table

HOSTILE = "</script><img src=x onerror=\"window.hit='text'\"><svg onload=window.hit=1> & {{ 7 * 7 }}"
HOSTILE_NAME = "<img/src=x/onerror=window.hit='name'>"
ARABIC = "ما هي عاصمة مصر"
SYSTEMS = ("bm25", HOSTILE_NAME, "short")
MEASURES = ("RR@10", "nDCG@20", "R@100")
PASSAGES_COUNT = 60
QUERIES_COUNT = 48


def passage_id(number, documents=False):
    """Name a passage; as one of four of a document, if there are documents."""
    return f"d{number // 4}#{number % 4}" if documents else f"p{number}"


def number_of_passage(doc_id):
    """Return the number of a passage."""
    document, _, part = doc_id[1:].partition("#")
    return 4 * int(document) + int(part) if part else int(document)


def text_of_query(number):
    return {0: HOSTILE, 1: ARABIC, 2: ""}.get(number, f"Which river runs through city {number}?")


def text_of_passage(number):
    long = " Rivers run to the sea." * 40 if number % 7 == 0 else ""
    special = {3: HOSTILE, 4: f"{ARABIC}؟ القاهرة هي عاصمة مصر"}.get(number)
    return special or f"City {number} has a running river and {number} bridges.{long}"


def rankings(system):
    """Query number -> passage numbers, best first; one system lacks queries, and one finds nothing for the last."""
    generator = np.random.default_rng(SYSTEMS.index(system))
    found = {query: generator.permutation(PASSAGES_COUNT - 5)[:30].tolist() for query in range(QUERIES_COUNT)}
    if system == "short":
        del found[5], found[6]
    return found


def judgements():
    """Query number -> passage number -> grade; the last query has a relevant passage that nobody finds."""
    found = {query: {query % 50: 1 + query % 3, (query + 9) % 50: 0} for query in range(QUERIES_COUNT)}
    found[QUERIES_COUNT - 1] = {PASSAGES_COUNT - 1: 1}
    found[0] = {3: 2, 4: 1, 5: 0}
    return found


def score(rank):
    """As the shortest decimal that gives the same single-precision number."""
    return float(str(np.float32(30 / rank)))


def values(system):
    """RR@10, and two measures like it, of each query."""
    found = {}
    for query, judged in judgements().items():
        ranking = rankings(system).get(query, [])
        ranks = [rank for rank, one in enumerate(ranking, 1) if judged.get(one, 0) > 0]
        first = ranks[0] if ranks else 0
        reached = 1 / first if 0 < first <= 10 else 0.0, 1 / (1 + first) if first else 0.0, float(first > 0)
        found[f"q{query}"] = dict(zip(MEASURES, reached, strict=True))
    return found


def write_experiment(folder, judged=QUERIES_COUNT, *, documents=False):
    """Write all inputs; return the words of the stage's command line, with `folder`/page as output.

    The first queries have judgements, as many as are `judged`; of documents, if passages are aggregated.
    """
    known = {query: one for query, one in judgements().items() if query < judged}
    grades = {}
    for query, one in known.items():
        for passage, grade in one.items():
            key = f"q{query}", passage_id(passage, documents).partition("#")[0]
            grades[key] = max(grade, grades.get(key, 0))
    tables = {
        "queries": (QUERIES, [(f"q{one}", text_of_query(one)) for one in range(QUERIES_COUNT)]),
        "passages": (PASSAGES, [(passage_id(one, documents), text_of_passage(one)) for one in range(PASSAGES_COUNT)]),
        "qrels": (QRELS, [(*key, grade) for key, grade in grades.items()]),
    }  # fmt: skip
    words = ["--dataset", "toy", "--split", "test", "--systems", *SYSTEMS]
    words += ["--aggregate", "max"] if documents else []
    for name, (schema, rows) in tables.items():
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in schema]
        write_table(folder / f"{name}.parquet", pa.table(columns, schema=schema))
        words += [f"--{name}", str(folder / f"{name}.parquet")]
    for number, system in enumerate(SYSTEMS):
        lines = [
            f"q{query} Q0 {passage_id(one, documents)} {rank} {score(rank)} s{number}\n"
            for query, ranking in rankings(system).items()
            for rank, one in enumerate(ranking, 1)
        ]
        (folder / f"{number}.trec").write_text("".join(lines), "utf-8")
        if judged:
            reached = {query_id: one for query_id, one in values(system).items() if int(query_id[1:]) < judged}
            write_values(folder / f"{number}.parquet", reached)
    for option, ending in [("--runs", "trec"), ("--per-query", "parquet")][: 2 if judged else 1]:
        words += [option, *(str(folder / f"{number}.{ending}") for number in range(len(SYSTEMS)))]
    return [*words, "--output", str(folder / "page")]


def unpack(path):
    """Return the name and the content that a file of data hands to the page."""
    name, packed = re.fullmatch(rb'shard\("([\w-]+)","([\w+/=]+)"\);\n', path.read_bytes()).groups()
    return name.decode(), json.loads(zlib.decompress(base64.b64decode(packed)))
