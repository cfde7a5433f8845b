import logging

import pytest

from cort.runtime import progress


def test_items_pass_unchanged_and_lines_are_logged_without_a_terminal(monkeypatch, caplog):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)
    with caplog.at_level(logging.INFO, logger="cort.runtime.progress"):
        assert list(progress.track("abc", 3, "letters")) == ["a", "b", "c"]
    said = [record.getMessage().split(",")[0] for record in caplog.records]
    assert said == [f"{number} of 3 letters" for number in (1, 2, 3)]


def test_a_bar_is_shown_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert list(progress.track(range(5), None, "numbers")) == [0, 1, 2, 3, 4]
    assert "numbers" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    """A clock that advances only on demand, and no terminal."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: False, raising=False)

    def pass_by(seconds):
        now[0] += seconds

    return pass_by


def test_a_line_comes_at_least_every_ten_seconds_but_not_in_a_short_stage(clock, caplog):
    caplog.set_level(logging.INFO)
    with progress.Counter(100, "texts") as counter:
        for _ in range(8):
            clock(0.5)
            counter.advance(1)
        assert caplog.messages == []
        for _ in range(40):
            clock(0.5)
            counter.advance(1)
    assert caplog.messages[0] == "10 of 100 texts, 2.00 texts/s, 00:45 left"
    assert len(caplog.messages) == 4
    assert progress.SECONDS_BETWEEN_LINES <= 10


def test_items_finished_earlier_do_not_affect_the_rate(clock, caplog):
    caplog.set_level(logging.INFO)
    with progress.Counter(100, "texts") as counter:
        counter.reach(50)
        clock(10)
        counter.advance(10)
        counter.reach(60)
    assert caplog.messages == ["60 of 100 texts, 1.00 texts/s, 00:40 left"]
