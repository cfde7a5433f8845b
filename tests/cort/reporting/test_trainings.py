import pytest

from cort.reporting.labels import MISSING
from cort.reporting.trainings import selection_rows
from cort.training.outcome import Selection


@pytest.mark.parametrize(
    ("found", "row"),
    [
        (Selection("loss", 2.5, 0.69, 1159), ("loss", MISSING, "2.5000", "0.6900", "after update 1,159")),
        (
            Selection("RR@10", 0.3, 0.3, 0),
            ("MRR@10", MISSING, "0.3000", "0.3000", "as it started: no update was better"),
        ),
        (Selection("RR@10", 0.2, 0.4, 7, 0.3), ("MRR@10", "0.3000", "0.2000", "0.4000", "after update 7")),
        (
            Selection("nDCG@10", 0.2, 0.3, 7, 0.3),
            ("nDCG@10", "0.3000", "0.2000", "0.3000", "after update 7; no better than not re-ranking"),
        ),
        (
            Selection("nDCG@10", 0.2, 0.2, 0, 0.3),
            (
                *("nDCG@10", "0.3000", "0.2000", "0.2000"),
                "as it started: no update was better; no better than not re-ranking",
            ),
        ),
    ],
)
def test_the_kept_model_is_told_with_what_it_was_chosen_against(found, row) -> None:
    assert selection_rows({"a": found}, ()) == [("a", *row)]
    last = "the last model, as asked for (checkpoint: last)"
    assert selection_rows({"a": found, "b": found}, ["b"]) == [("a", *row), ("b", *row[:-1], last)]
