"""Progress of long work: bars for people, lines for logs."""

import logging

import pytest

from cort.system import progress


@pytest.mark.parametrize(
    ("count", "seconds", "text"),
    [(90, 30.0, "3.0 per second"), (30, 30.0, "1.0 per second"), (2, 60.0, "2.0 per minute")],
)
def test_rate_is_in_a_readable_unit(count, seconds, text):
    assert progress.rate_text(count, seconds) == text


def test_items_pass_unchanged_and_lines_come_when_nobody_watches(monkeypatch, caplog):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with caplog.at_level(logging.INFO, logger="cort.system.progress"):
        assert list(progress.track("abc", 3, "letters")) == ["a", "b", "c"]
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "1 of 3 letters",
        "2 of 3 letters",
        "3 of 3 letters",
    ]


def test_a_bar_is_shown_to_a_person(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert list(progress.track(range(5), None, "numbers")) == [0, 1, 2, 3, 4]
    assert "numbers" in capsys.readouterr().err
