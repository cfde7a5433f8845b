"""The rehearsal: which stages it drives, what it makes up, how growth is told, and a run of one small size."""

import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from cort.formats import tables
from cort.formats.expansions import iter_predictions
from cort.formats.judgements import iter_qrels
from cort.formats.passages import iter_passages
from cort.formats.topics import iter_queries
from scripts import rehearsal
from tests.support.workflow import RULES, command_of

# Of counts and measures alone, whatever the size of the collection; or made from nothing.
SMALL = {"resolve", "pydocs", "provenance", "report", "reproduction", "analyze agreement"}
# Of the size of a model, or bound by it: the same for each example or text.
MODELS = {"import_encoder", "pretrained", "train", "train_reranker"}
MODELS |= {
    "encode vectors",
    "encode tokens",
    "encode impacts",
    "score",
    "expand score",
    "expand predict",
    "weigh predict",
    "latency",
}
# Streams of one file each, or of texts; bound by the network, and by unpacking.
STREAMS = {"import_triples", "expand filter", "download", "weigh import", "inspect"}
STREAMS |= {"aggregate", "analyze overlap", "analyze sparsity", "deploy"}
STREAMS |= {"import_split", "generate", "passage_queries", "judge"}
# Repeats others with more parameters, or on parts; or of an extra.
REPEATED = {"tune bm25", "tune weights", "audit graph", "audit ivfpq", "retrieve merge"}
REPEATED |= {"index ivfpq", "retrieve ivfpq", "index impacts", "retrieve impacts"}

# What does not grow with the size, for a small rehearsal.
PARTS = {"DEV": 20, "SEARCHED": 10, "CHANGED": 5, "DEPTH": 50}


def test_every_stage_is_driven_or_known_to_be_small(tmp_path):
    rules = {step.name.split()[0] for step in rehearsal.steps(tmp_path, Fraction(1), tmp_path, 2)} | {"base_model"}
    driven = {rehearsal.COMMANDS.get(rule, rule) for rule in rules}
    known = [driven, SMALL, MODELS, STREAMS, REPEATED]
    assert set().union(*known) == {command_of(rule) for rule in RULES}
    assert sum(map(len, known)) == len(set().union(*known))


def test_growth_is_the_exponent_of_the_cpus_time():
    shared = dict.fromkeys(("own", "resident", "disk", "kept", "seconds"), 1.0) | {"unit": "texts", "note": ""}
    for cpu, expected in ((8.0, "1.00"), (32.0, "2.00")):
        sizes = [{"name": "x", "size": "1/4", "n": 100, "cpu": 2.0}, {"name": "x", "size": "1", "n": 400, "cpu": cpu}]
        [row] = rehearsal.rows([shared | one for one in sizes])
        assert row[:4] == ["`x`", "400 texts", "1 at 1/4, 1 at 1", expected]


def rows(reader, path):
    return [record for _, record in reader(path)]


def test_files_have_the_proportions_of_ms_marco_and_the_same_bytes_each_time(tmp_path):
    size = Fraction(1, 1024)
    for name in ("one", "other"):
        rehearsal.generate(tmp_path / name, size)
    assert all(
        path.read_bytes() == (tmp_path / "other" / path.name).read_bytes() for path in (tmp_path / "one").iterdir()
    )
    passages = rows(iter_passages, tmp_path / "one" / "collection.tsv")
    assert len(passages) == round(rehearsal.PASSAGES * size)
    assert 54 < np.mean([len(passage.text.split()) for passage in passages]) < 58
    asked = {}
    for name, counts in {**rehearsal.SPLITS, "dev": (101_093, 55_578)}.items():
        qrels = rows(iter_qrels, tmp_path / "one" / f"qrels.{name}.tsv")
        asked[name] = {query.id for query in rows(iter_queries, tmp_path / "one" / f"queries.{name}.tsv")}
        assert [len(asked[name]), len(qrels)] == pytest.approx([float(count * size) for count in counts], abs=2)
        assert {qrel.query_id for qrel in qrels} <= asked[name]
        assert {qrel.doc_id for qrel in qrels} <= {passage.id for passage in passages}
    assert asked["dev.small"] < asked["dev"]
    assert not asked["dev"] & asked["train"]


def test_made_up_queries_are_what_the_importer_reads(tmp_path, monkeypatch):
    monkeypatch.setattr(rehearsal, "BLOCK", 30)
    texts = [" ".join([f"word{number % 7} x{number}"] * 5) for number in range(50)]
    columns = {"doc_id": [f"d{number}" for number in range(50)], "text": texts}
    tables.write_table(tmp_path / "passages.parquet", pa.table(columns, schema=tables.PASSAGES))
    rehearsal.write_predictions(tmp_path / "queries.zip", tmp_path / "passages.parquet")
    predicted = list(iter_predictions(tmp_path / "queries.zip", rehearsal.PREDICTED))
    for text, queries in zip(texts, predicted, strict=True):
        assert [len(query.split()) for query in queries] == [rehearsal.PREDICTED_WORDS] * rehearsal.PREDICTED
        assert set(" ".join(queries).split()) == set(text.split())


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_small_rehearsal_runs_and_goes_on_where_it_ended(tmp_path, monkeypatch, capsys):
    for name, value in PARTS.items():
        monkeypatch.setattr(rehearsal, name, value)
    monkeypatch.setattr(sys, "argv", ["", "--folder", str(tmp_path), "--sizes", "1/2048"])
    rehearsal.main()
    said = capsys.readouterr().out
    assert all(f"| `{step.name}` |" in said for step in rehearsal.steps(tmp_path, Fraction(1, 2048), tmp_path, 2))
    before = (tmp_path / "measurements.jsonl").stat().st_mtime_ns
    rehearsal.main()
    assert (tmp_path / "measurements.jsonl").stat().st_mtime_ns == before
