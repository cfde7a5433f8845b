"""Arrays of JSON objects, and objects of several lines."""

import json

import pytest

from cort.formats.fields import BadLine
from cort.formats.json_records import begins, iter_objects

ROWS = [
    {"id": number, "text": f'x "[{{{number}}}], \\ é\n' * (number % 7), "more": [{"a": []}]} for number in range(3_000)
]
FORMS = {
    "one line": json.dumps(ROWS),
    "indented": json.dumps(ROWS, indent=2, ensure_ascii=False),
    "a line each": "[\n" + ",\n".join(map(json.dumps, ROWS)) + "\n]\n",
    "objects": "\n".join(json.dumps(row, indent=1) for row in ROWS),
    "objects with commas": ",\n".join(json.dumps(row, indent=1) for row in ROWS),
    "not closed": json.dumps(ROWS)[:-1],
}


def read(text):
    return list(iter_objects(enumerate(text.split("\n"), 1)))


@pytest.mark.parametrize("form", FORMS)
def test_all_objects_are_read(form):
    assert begins(FORMS[form].encode())
    assert read(FORMS[form]) == list(enumerate(ROWS, 1))


def test_a_broken_object_costs_no_other():
    rows = ['{"id": 1}', '{"id": 2, "text": "a\nb"}', '{"id": 3}', '{"id": }', '{"id": 5}', '{"id": 6']
    found = [value for _, value in read("[" + ",\n".join(rows))]
    assert [one for one in found if not isinstance(one, BadLine)] == [{"id": 1}, {"id": 3}, {"id": 5}]
    assert sum(isinstance(one, BadLine) for one in found) == 3
    assert isinstance(read('[{"a": 1}, 7]')[1][1], BadLine)
    assert [type(one) for _, one in read("[{" * 5_000)] == [BadLine]


@pytest.mark.parametrize("head", ['{"id": 1}\n', "[1]\n", "[[", "[x] {", "text\n[{", ""])
def test_other_files(head):
    assert not begins(head.encode())
