"""The rehearsal: which stages it drives, how growth is told, and a run of one small size."""

from fractions import Fraction
from pathlib import Path

import pytest

from scripts.rehearsal.rehearse import Measurement, growth, main, write_report
from scripts.rehearsal.steps import steps
from tests.support.workflow import stage_modules

# Made from counts and measures alone, whatever the size of the collection; or made from nothing.
SMALL = {"manifest", "pydocs", "provenance", "report", "reproduction"}
# Not driven yet: predicted queries, weighed terms and what a browser is shown.
NOT_YET = {"import_expansions", "import_term_weights", "term_recall", "train_weigher", "weigh", "explorer"}
NOT_YET |= {"train_expander", "expand", "encode_tokens", "retrieve_tokens"}
# Of the size of a model.
MODELS = {"import_encoder", "export_model", "pretrained"}
# As `train` and `encode`: neural, so on a part; the pairs of `score` are drawn at random.
NEURAL = {"train_reranker", "score"}
# Bound by the network, and by unpacking.
FETCHING = {"download", "extract"}
# Searches with what is driven.
SEARCHING = {"latency"}
# Repeats `bm25` with more parameters, `retrieve_graph` with other widths, `fuse` with other weights on fewer queries.
REPEATED = {"bm25_tune", "audit", "fuse_tune"}
# Of parts of the passages, if somebody asks for them.
SCATTERED = {"merge"}


def measured(size, n, seconds, **others):
    return Measurement("collection", size, n, "passages", seconds, **others)


def test_every_stage_is_driven_or_known_to_be_small(tmp_path):
    driven = {step.stage for step in steps(tmp_path, Fraction(1), tmp_path, 2)} | {"base_model"}
    assert driven | SMALL | NOT_YET | MODELS | NEURAL | FETCHING | REPEATED | SEARCHING | SCATTERED == {
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
    assert lines[4] == "| `collection` | 400 passages | 2 / 8 | 1.00 | 2.00 |  | 0.00 | 1.00 |  |"
    assert "old" not in lines


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_small_rehearsal_runs_and_goes_on_where_it_ended(tmp_path, monkeypatch):
    for name, value in {"DEV_QUERIES": 20, "SEARCHED": 10, "TRIPLES": 12, "ENCODED": 100, "DEPTH": 50}.items():
        monkeypatch.setattr(f"scripts.rehearsal.steps.{name}", value)
    arguments = ["--folder", str(tmp_path / "work"), "--sizes", "1/2048", "--threads", "2"]
    report = tmp_path / "scale.md"
    assert main([*arguments, "--report", str(report)]) == 0
    table = report.read_text()
    for step in steps(tmp_path, Fraction(1, 2048), tmp_path, 2):
        assert f"| `{step.name}` |" in table
    before = (tmp_path / "work" / "measurements.jsonl").read_bytes()
    assert main(arguments) == 0
    assert (tmp_path / "work" / "measurements.jsonl").read_bytes() == before
