"""What a writer wrote is read as it was. How to run it for long, tests/support/fuzz.py says."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cort.formats import embeddings, raw, tables, tokens
from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.records import Ranking, Text
from cort.formats.runs import read_run, write_run
from tests.support.fuzz import Part, Whole, all_tokens, all_vectors, fuzzed

WORD = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zs", "Zl", "Zp", "Cs"], exclude_characters='"'),
    min_size=1,
)
LINE = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n\x00"), max_size=20).map(lambda one: f"x{one}y")


def round_trip(write, read):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.tsv"
        write(path)
        return read(path)


@fuzzed
@given(
    st.dictionaries(WORD, LINE, min_size=1, max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
def test_texts_come_back(texts, end):
    lines = "".join(f"{one}\t{text}{end}" for one, text in texts.items())
    expected = [Text(*one) for one in texts.items()]

    def write(path):
        path.write_bytes(lines.encode())

    assert round_trip(write, lambda path: [one for _, one in raw.iter_queries(path)]) == expected
    assert round_trip(write, _passages) == expected


def _passages(path):
    return [Text(*one.values()) for batch in raw.iter_passage_batches(path) for one in batch.to_pylist()]


SCORES = st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=5)
DOC_IDS = st.lists(WORD, min_size=5, max_size=5, unique=True)


@fuzzed
@given(
    st.dictionaries(
        WORD, st.tuples(st.lists(WORD, min_size=5, max_size=5, unique=True), SCORES), min_size=1, max_size=3
    )
)
def test_runs_come_back(results):
    rankings = [
        Ranking(query_id, doc_ids[: len(scores)], np.array(sorted(scores, reverse=True)))
        for query_id, (doc_ids, scores) in results.items()
    ]
    again = round_trip(lambda path: write_run(path, rankings, "tag"), lambda path: list(read_run(path)))
    assert [one[:2] for one in again] == [one[:2] for one in rankings]


NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
PARTS = st.builds(Part, NAMES, st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.none() | st.integers(0))


@fuzzed
@given(st.builds(Whole, NAMES, st.booleans(), st.dictionaries(NAMES, PARTS)))
def test_artifacts_come_back(whole):
    assert round_trip(lambda path: write_artifact(path, whole), lambda path: read_artifact(path, Whole)) == whole


@fuzzed
@given(st.lists(st.tuples(NAMES, st.lists(st.integers(-(1 << 31), (1 << 31) - 1), max_size=4)), max_size=5))
def test_tokens_come_back(texts):
    ids, lists = pa.array([one for one, _ in texts], pa.string()), [one for _, one in texts]
    found = round_trip(lambda path: tokens.write_tokens(path, [(ids, lists)], "f"), all_tokens)
    assert found == (lists, ids.to_pylist())


@fuzzed
@given(st.lists(st.tuples(st.floats(width=16, allow_nan=False)), max_size=5), st.sampled_from(["fp16", "fp32"]))
def test_embeddings_come_back(vectors, storage):
    ids = [str(number) for number in range(len(vectors))]
    matrix = np.array(vectors, np.float32).reshape(len(vectors), 1)
    settings = {"model": "m", "dimension": 1, "count": len(ids), "storage": storage}
    found = round_trip(lambda path: embeddings.write_shard(path, [(ids, matrix)], **settings), all_vectors)
    assert found == (ids, matrix.tolist())


@fuzzed
@given(st.lists(st.tuples(NAMES, NAMES, st.integers(-(1 << 31), (1 << 31) - 1)), max_size=5))
def test_tables_come_back(rows):
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
    table = pa.table(columns, schema=tables.QRELS)
    read = lambda path: tables.read_table(path, tables.QRELS)  # noqa: E731
    assert round_trip(lambda path: tables.write_table(path, table), read).equals(table)
