"""The rehearsal: which stages it drives, how growth is told, and a run of one small size."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cort.formats import tables
from cort.formats.predictions import iter_predictions
from cort.formats.weighted import iter_documents
from scripts.rehearsal.measurements import Measurement, growth, write_report
from scripts.rehearsal.rehearse import main
from scripts.rehearsal.steps import steps
from scripts.rehearsal.words import QUERIES, QUERY_WORDS, WEIGHT, write_documents, write_predictions
from tests.support.workflow import stage_modules

# Made from counts and measures alone, whatever the size of the collection; or made from nothing.
SMALL = {"manifest", "pydocs", "provenance", "report", "reproduction"}
# Of an extra, on what late interaction is driven with.
EXTRA = {"ivfpq", "retrieve_ivfpq"}
# Of the size of a model.
MODELS = {"import_encoder", "export_model", "pretrained"}
# As `encode`, but its pairs are drawn at random; of predicted queries, as of any.
NEURAL = {"score", "score_expansions"}
# Streams of one file each, whose seconds per million lines docs/training.md has.
STREAMS = {"import_triples", "filter_expansions"}
# Bound by the network, and by unpacking.
FETCHING = {"download", "extract"}
# Searches with what is driven.
SEARCHING = {"latency"}
# Repeats `bm25` with more parameters, `retrieve_graph` with other widths, `fuse` with other weights on fewer queries.
REPEATED = {"bm25_tune", "audit", "audit_tokens", "fuse_tune"}
# Of parts of the passages, if somebody asks for them.
SCATTERED = {"merge"}

# What does not grow with the size, for a small rehearsal.
PARTS = {"DEV_QUERIES": 20, "SEARCHED": 10, "CHANGED_QUERIES": 5, "EXAMPLES": 12, "ENCODED": 4_096, "DEPTH": 50}


def measured(size, n, seconds, **others):
    return Measurement("collection", size, n, "passages", seconds, **others)


def test_every_stage_is_driven_or_known_to_be_small(tmp_path):
    driven = {step.stage for step in steps(tmp_path, Fraction(1), tmp_path, 2)} | {"base_model"}
    assert driven | SMALL | MODELS | NEURAL | FETCHING | REPEATED | SEARCHING | SCATTERED | STREAMS | EXTRA == {
        Path(module).stem for module in stage_modules()
    }


def test_growth_is_the_exponent():
    assert growth(measured("1/4", 100, 2.0), measured("1", 400, 8.0)) == pytest.approx(1)
    assert growth(measured("1/4", 100, 2.0), measured("1", 400, 32.0)) == pytest.approx(2)


def test_the_table_goes_between_the_marks_and_nothing_else_changes(tmp_path):
    path = tmp_path / "scale.md"
    path.write_text("before\n<!-- measured -->\nold\n<!-- end of measured -->\nafter\n")
    write_report(path, [measured("1", 400, 8.0, own=2e9, kept=1e9), measured("1/4", 100, 2.0)])
    lines = path.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert lines[4] == "| `collection` | 400 passages | 2 / 8 | 1.00 |  | 2.00 |  | 0.00 | 1.00 |  |"
    assert "old" not in lines


def test_rows_stay_until_as_much_is_measured_again(tmp_path):
    path = tmp_path / "scale.md"
    path.write_text("<!-- measured -->\n<!-- end of measured -->\n")
    write_report(path, [measured("1/4", 100, 2.0), measured("1", 400, 8.0)])
    others = [replace(measured("1/16", 25, 3.0), name=name) for name in ("collection", "explorer")]
    write_report(path, others)
    rows = path.read_text().splitlines()[1:-1]
    assert rows[0].startswith("| stage | n | seconds at 1/16, 1/4, 1 |")
    assert [row.split(" | ")[:3] for row in rows[2:]] == [
        ["| `collection`", "400 passages", "- / 2 / 8"],
        ["| `explorer`", "25 passages", "3 / - / -"],
    ]
    write_report(path, [measured("1", 400, 9.0, cpu=12.0)])
    assert path.read_text().splitlines()[3].startswith("| `collection` | 400 passages | - / - / 9 |  | 12 |")


def test_growth_is_that_of_the_cpus_time_where_it_is_known():
    smaller, larger = measured("1/4", 100, 1.0, cpu=3.0), measured("1", 400, 64.0, cpu=12.0)
    assert growth(smaller, larger) == pytest.approx(1)


def test_made_up_queries_and_documents_are_what_the_importers_read(tmp_path, monkeypatch):
    monkeypatch.setattr("scripts.rehearsal.words.ROWS", 30)
    texts = [f"word{number % 7} x{number} " * 5 for number in range(50)]
    rows = {"doc_id": [f"d{number}" for number in range(50)], "text": [text.strip() for text in texts]}
    tables.write_table(tmp_path / "passages.parquet", pa.table(rows, schema=tables.PASSAGES))
    write_predictions(tmp_path / "queries.zip", tmp_path / "passages.parquet")
    predicted = list(iter_predictions(tmp_path / "queries.zip", QUERIES))
    assert [len(one) for one in predicted] == [QUERIES] * 50
    for text, queries in zip(texts, predicted, strict=True):
        assert {len(query.split()) for query in queries} == {QUERY_WORDS}
        assert set(" ".join(queries).split()) == set(text.split())
    write_documents(tmp_path / "documents.zip", tmp_path / "passages.parquet")
    documents = pa.Table.from_batches(batch for _, batch in iter_documents(tmp_path / "documents.zip")).to_pylist()
    assert [one["doc_id"] for one in documents] == rows["doc_id"]
    assert all(set(one["terms"]) == set(text.split()) for one, text in zip(documents, texts, strict=True))
    weights = [weight for one in documents for weight in one["weights"]]
    # Each word five times, of a geometric distribution.
    assert np.mean(weights) == pytest.approx(5 * WEIGHT, rel=0.2)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_small_rehearsal_runs_and_goes_on_where_it_ended(tmp_path, monkeypatch):
    for name, value in PARTS.items():
        monkeypatch.setattr(f"scripts.rehearsal.common.{name}", value)
    arguments = ["--folder", str(tmp_path / "work"), "--sizes", "1/2048", "--threads", "2"]
    report = tmp_path / "scale.md"
    assert main([*arguments, "--report", str(report)]) == 0
    table = report.read_text()
    for step in steps(tmp_path, Fraction(1, 2048), tmp_path, 2):
        assert f"| `{step.name}` |" in table
    before = (tmp_path / "work" / "measurements.jsonl").read_bytes()
    assert main(arguments) == 0
    assert (tmp_path / "work" / "measurements.jsonl").read_bytes() == before
