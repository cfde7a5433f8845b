import csv
import io
import json
from dataclasses import dataclass

import pytest

from cort.formats.artifacts import csv_text, read_artifact, to_json, write_artifact
from tests.support.common import refusal, write_file


@dataclass(frozen=True)
class Part:
    text: str
    place: float | None


@dataclass(frozen=True)
class Record:
    name: str
    count: int
    share: float
    good: bool
    parts: list[Part]
    best: Part | None
    by_name: dict[str, list[float | None]]
    why: tuple[str, ...] = ()


RECORD = Record("é", 3, 0.1, True, [Part("a", None), Part("b", 1 / 3)], None, {"x": [1.0, None]}, ("one", "two"))
FILE = {"name": "n", "count": 3, "share": 1, "good": False, "parts": [], "best": None, "by_name": {}}


def test_what_is_written_is_read(tmp_path):
    write_artifact(tmp_path / "x.json", RECORD)
    assert read_artifact(tmp_path / "x.json", Record) == RECORD
    text = (tmp_path / "x.json").read_text("utf-8")
    assert text == to_json(RECORD)
    assert text.startswith('{\n  "name": "é",\n  "count": 3,\n  "share": 0.1,\n  "good": true,\n  "parts": [\n    {')
    assert text.endswith('"why": [\n    "one",\n    "two"\n  ]\n}\n')


def test_unknown_members_are_ignored_and_integers_are_numbers(tmp_path):
    (tmp_path / "x.json").write_text(json.dumps(FILE | {"more": 1}))
    record = read_artifact(tmp_path / "x.json", Record)
    assert (record.share, type(record.share), record.why) == (1.0, float, ())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"count": True}, "true at count, expected a valid integer"),
        ({"good": 1}, "1 at good, expected a valid boolean"),
        ({"best": []}, "[] at best, expected an object"),
        ({"best": {"text": "a"}}, "no 'place' at best"),
        ({"parts": [{"text": "a", "place": 1}, {"text": 2}]}, "2 at parts[1].text, expected a valid string"),
        ({"by_name": {"x": ["1"]}}, "'1' at by_name.x[0], expected a valid number"),
        ({"why": "one"}, "'one' at why, expected a valid array"),
        *((text, "unreadable content") for text in ('{"a": [1', "[" * 100_000, "\ufeff1", "")),
    ],
)
def test_errors_name_the_file_and_the_place(tmp_path, change, complaint):
    path = write_file(tmp_path / "x.json", change if isinstance(change, str) else json.dumps(FILE | change))
    assert refusal(lambda path: read_artifact(path, Record), path).startswith(f"found {complaint}")


def test_tables_have_every_digit_and_empty_cells():
    assert csv_text(("a", "b"), [(1 / 3, None), ("x,y", 1)]) == f'a,b\n{1 / 3!r},\n"x,y",1\n'


def test_no_text_in_a_csv_file_is_a_formula_and_numbers_stay_numbers():
    row = ("=1+1", "+1+1", "-a", "@a", "\t=1", "\r=1", "a\r\n-b", "'=1", -0.12, "-1e-05", None, True)
    _, written = csv.reader(io.StringIO(csv_text("abc", [row]), newline=""))
    made = ["'=1+1", "'+1+1", "'-a", "'@a", "'\t=1", "'\n=1"]
    assert written == [*made, "a\n-b", "'=1", "-0.12", "-1e-05", "", "True"]
    # What one stage wrote and another repeats is as before.
    assert csv_text("abc", [written]) == csv_text("abc", [row])
