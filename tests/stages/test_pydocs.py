"""The docstring collection: which files are read, which filter drops what, how the lock is checked, what is written."""

import ast
import json
import random
import sysconfig
from pathlib import Path

import pytest

from cort import collection, pydocs, split
from cort.formats.raw import iter_passages, iter_qrels, iter_queries
from cort.formats.records import Text
from cort.pydocs import (
    Docstring,
    Options,
    Source,
    iter_docstrings,
    list_library_files,
    list_sources,
    parse_file,
    read_docstrings,
    read_lock,
    select,
    split_queries,
)
from cort.system.errors import InputError
from tests.support.common import logged

pytestmark = pytest.mark.usefixtures("record_messages")

LIMITS = Options(min_query_words=2, max_query_words=4, min_passage_words=3, lock="", output_folder="")


# Docstrings by parsing


CODE = '''
"""Module summary
on two lines.

Module  body.

\tMore of it.
"""

class Outer:
    """Outer summary."""

    async def method(self):
        """Method summary.
          \t
        Method body."""

        def inner():
            "Inner summary.\\n\\nInner body."

    @property
    def value(self):
        """Get."""

    @value.setter
    def value(self, new):
        """Set."""

    class Nested:
        def undocumented(self): ...

        def documented(self):
            """Deep."""

if True:
    def branch(): "First."
elif False:
    def branch(): "Second."
else:
    def branch(): b"No docstring."

try:
    pass
except ValueError:
    def handler(): "In a handler."

match 1:
    case 1:
        def matched(): "In a case."

with open("x"):
    for _ in ():
        while True:
            def deep(): """
            """
            def half(): "Half \\ud800 character, \\0 NUL."
'''


def test_docstrings_of_every_definition_in_source_order():
    assert list(iter_docstrings("pkg/a.py", ast.parse(CODE))) == [
        Docstring("pkg/a.py", "Module summary on two lines.", "Module body. More of it."),
        Docstring("pkg/a.py:Outer", "Outer summary.", ""),
        Docstring("pkg/a.py:Outer.method", "Method summary.", "Method body."),
        Docstring("pkg/a.py:Outer.method.inner", "Inner summary.", "Inner body."),
        Docstring("pkg/a.py:Outer.value", "Get.", ""),
        Docstring("pkg/a.py:Outer.value#2", "Set.", ""),
        Docstring("pkg/a.py:Outer.Nested.documented", "Deep.", ""),
        Docstring("pkg/a.py:branch", "First.", ""),
        Docstring("pkg/a.py:branch#2", "Second.", ""),
        Docstring("pkg/a.py:handler", "In a handler.", ""),
        Docstring("pkg/a.py:matched", "In a case.", ""),
        Docstring("pkg/a.py:half", "Half ? character, NUL.", ""),
    ]


@pytest.mark.parametrize("content", [b"def f(:\n", b"\x00", b"# coding: nonsense\n", b"'\xff'\n", b"(" * 5000])
def test_invalid_python_is_none(tmp_path, content):
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    assert parse_file(Source("bad.py", str(path), "p")) is None


def test_other_encodings_are_read_as_declared(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes('# coding: latin-1\n"""Café."""\n'.encode("latin-1"))
    assert parse_file(Source("latin.py", str(path), "p")) == [Docstring("latin.py", "Café.", "")]


def test_long_elif_chain_needs_no_recursion():
    chain = "if x == 0: pass\n" + "".join(f"elif x == {n}: pass\n" for n in range(1, 90))
    module = ast.parse(chain + "else:\n  def f(): 'Found.'\n")
    # Each elif nests once more; grafting one chain into the other stands for a generated file of any length.
    for _ in range(30):
        wrapper = ast.parse(chain + "else:\n  pass\n")
        last = wrapper.body[0]
        while isinstance(last.orelse[0], ast.If):
            last = last.orelse[0]
        last.orelse = module.body
        module = wrapper
    assert list(iter_docstrings("a.py", module)) == [Docstring("a.py:f", "Found.", "")]


# Files


def test_processes_give_the_same_docstrings_in_the_same_order(tmp_path):
    sources = []
    for number in range(2 * pydocs.FILES_PER_TASK + 1):
        path = tmp_path / f"m{number}.py"
        path.write_text(f'"""Number {number}."""\n' if number % 7 else "no python")
        sources.append(Source(path.name, str(path), "p"))
    alone = list(read_docstrings(sources, 1))
    assert alone[1] == [Docstring("m1.py", "Number 1.", "")]
    assert alone[::7] == [None] * 10
    assert list(read_docstrings(sources, 2)) == alone


def touch(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_library_files_leave_out_tests_and_copies(tmp_path):
    kept = ["abc.py", "json/__init__.py", "json/decoder.py", "unittest/mock.py"]
    excluded = [
        *("test/test_abc.py", "unittest/test/support.py", "lib2to3/tests/x.py", "idlelib/x.py", "ensurepip/x.py"),
        *("site-packages/numpy/x.py", "p/_vendor/x.py", "p/vendored/x.py", "p/extern/x.py", "abc.txt", "abc.pyc"),
    ]
    touch(tmp_path, *kept, *excluded)
    assert [source.name for source in list_sources((), list_library_files(tmp_path))] == kept


def test_real_library_has_the_json_decoder():
    root = Path(sysconfig.get_path("stdlib"), "json")
    docstrings = [found for result in read_docstrings(list(list_library_files(root)), 1) for found in result]
    found = {docstring.doc_id: docstring for docstring in docstrings}["decoder.py:JSONDecoder.raw_decode"]
    assert found.summary.startswith("Decode a JSON document from")
    assert found.body.startswith("This can be used to decode a JSON document from a string")


def test_one_file_has_one_owner_and_names_hold_no_blanks():
    packages = [
        Source("b.py", "/1/b.py", "one"),
        Source("b.py", "/1/b.py", "two"),
        Source("c d.py", "/1/c d.py", "one"),
    ]
    library = [Source("b.py", "/lib/b.py", "library"), Source("a.py", "/lib/a.py", "library")]
    assert list_sources(packages, library) == [library[1], packages[0]]


def test_lock_lines(tmp_path):
    path = tmp_path / "requirements.lock"
    path.write_text(
        "# a comment\n--extra-index-url https://example.org/simple\n\n"
        "torch==2.13.0+cpu\nalpha==1.0 \\\n    --hash=sha256:00\nBeta_x.y==2!3.0rc1  # why\n"
    )
    assert read_lock(path) == {"torch": "2.13.0+cpu", "alpha": "1.0", "Beta_x.y": "2!3.0rc1"}


@pytest.mark.parametrize("line", ["numpy>=2", "numpy", "numpy==2; python_version < '3'", "numpy==2.*", "../numpy"])
def test_lock_lines_that_pin_nothing_are_refused(tmp_path, line):
    path = tmp_path / "requirements.lock"
    path.write_text(f"alpha==1.0\n{line}\n")
    with pytest.raises(InputError) as error:
        read_lock(path)
    assert str(error.value) == (
        f"{path}: row 2: found {line!r}, expected name==version; pin each package exactly (`pip freeze`)"
    )


# Filters

BODY = "one two three"


def test_filters_count_in_order():
    docstrings = [
        Docstring("z.py", "a later copy", BODY),
        Docstring("a.py", "two words", BODY),
        Docstring("b.py", "one", BODY),
        Docstring("c.py", "one two three four five", "short"),
        Docstring("d.py", "two words", "too short"),
        Docstring("e.py", "two words", "another body here"),
        Docstring("f.py", "one two three four", "a third body of more words"),
    ]
    passages, queries, counts = select(docstrings, LIMITS)
    assert passages == [
        Text("a.py", BODY),
        Text("e.py", "another body here"),
        Text("f.py", "a third body of more words"),
    ]
    assert queries == [Text("q:a.py", "two words"), Text("q:f.py", "one two three four")]
    assert list(counts.items()) == [
        ("docstrings", 7),
        ("dropped: summary too short or too long", 2),
        ("dropped: body too short", 1),
        ("dropped: body seen before", 1),
        ("queries dropped: summary seen before", 1),
        ("passages kept", 7 - 2 - 1 - 1),
        ("queries kept", 3 - 1),
    ]


def test_selection_does_not_depend_on_the_order_of_the_files():
    docstrings = [Docstring(f"{n}.py", f"summary {n % 5}", f"body number {n % 7}") for n in range(40)]
    expected = select(docstrings, LIMITS)
    for seed in range(5):
        random.Random(seed).shuffle(docstrings)  # noqa: S311
        assert select(docstrings, LIMITS) == expected


def test_split_is_a_partition_drawn_from_sorted_ids():
    queries = [Text(f"q:{n}.py", f"text {n}") for n in range(20)]
    splits = split_queries(queries, 3, 5, seed=42)
    assert {name: len(part) for name, part in splits.items()} == {"train": 12, "validation": 3, "test": 5}
    assert sorted(query for part in splits.values() for query in part) == sorted(queries)
    for part in splits.values():
        assert part == [query for query in queries if query in part]
    drawn = random.Random(42).sample(sorted(query.id for query in queries), 8)  # noqa: S311
    assert {query.id for query in splits["validation"]} == set(drawn[:3])
    again = split_queries(queries[::-1], 3, 5, seed=42)
    assert {name: sorted(part) for name, part in again.items()} == {name: sorted(part) for name, part in splits.items()}


@pytest.mark.parametrize(("validation", "test"), [(10, 10), (0, 1), (1, 0), (-1, 5)])
def test_split_without_room_is_refused(validation, test):
    with pytest.raises(InputError) as error:
        split_queries([Text(f"q:{n}", "text") for n in range(20)], validation, test, seed=0)
    assert str(error.value) == (
        f"--validation-queries and --test-queries: found {validation} and {test} of 20 queries, expected at least "
        "one each, and some left for training; ask for fewer queries or loosen the word limits"
    )


# The whole stage, on a package and a library of its own


def module(number):
    return f'"""Entity number {number}.\n\nBody of entity {number}: {"word " * number}end.\n"""\n'


@pytest.fixture
def installation(tmp_path, monkeypatch):
    """Install package ``made-up`` of ten modules and a library of two; return a function that runs the stage."""
    site, library = tmp_path / "site", tmp_path / "library"
    files = {f"made_up/m{number}.py": module(number) for number in range(10)}
    files |= {"made_up/tests/t.py": module(50), "made_up/_vendor/v.py": module(51), "made_up/bad.py": "no python"}
    records = [*files, "../../bin/script.py", "made_up_up-1.0.dist-info/RECORD"]
    files |= {
        "made_up-1.0+local.dist-info/METADATA": "Metadata-Version: 2.1\nName: made-up\nVersion: 1.0+local\n",
        "made_up-1.0+local.dist-info/RECORD": "".join(f"{name},,\n" for name in records),
        "unrecorded-2.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: unrecorded\nVersion: 2.0\n",
    }
    for root, contents in ((site, files), (library, {"lib_a.py": module(20), "lib_b.py": module(3)})):
        for name, text in contents.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(library))
    lock = tmp_path / "requirements.lock"

    def run(*options, pins="Made_Up==1.0\n", folder="raw"):
        lock.write_text(pins)
        status = pydocs.main(
            [
                *("--lock", str(lock), "--output-folder", str(tmp_path / folder)),
                *("--validation-queries", "2", "--test-queries", "3", "--seed", "42"),
                *("--min-query-words", "3", "--max-query-words", "5", "--min-passage-words", "5"),
                *options,
            ]
        )
        return status, tmp_path / folder, lock

    return run


def test_what_could_not_be_compiled_is_not_missed(installation, monkeypatch):
    real = pydocs.importlib.metadata.distribution

    def without(name):
        if name == "hnswlib":
            raise pydocs.importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(pydocs.importlib.metadata, "distribution", without)
    _, folder, _ = installation(folder="without")
    status, other, _ = installation(pins="Made_Up==1.0\nhnswlib==0.8.0\n", folder="with")
    assert status == 0
    names = sorted(path.name for path in folder.glob("[!.]*"))
    assert [(other / name).read_bytes() for name in names] == [(folder / name).read_bytes() for name in names]


def test_stage_writes_what_the_other_stages_read(installation, tmp_path, caplog):
    status, folder, _ = installation()
    assert status == 0
    assert sorted(path.name for path in folder.glob("[!.]*")) == sorted(
        ["collection.tsv", "filters.json"]
        + [f"{kind}.{name}.tsv" for kind in ("queries", "qrels") for name in ("train", "validation", "test")]
    )
    # "Body of entity 0: end." has five words; lib_b.py repeats m3.py's docstring and sorts before it.
    names = ["lib_a.py", "lib_b.py", *(f"made_up/m{number}.py" for number in range(10) if number != 3)]
    passages = [passage for _, passage in iter_passages(folder / "collection.tsv")]
    assert [passage.id for passage in passages] == names
    assert passages[2].text == "Body of entity 0: end."
    judged = []
    for name, count in (("train", 11 - 2 - 3), ("validation", 2), ("test", 3)):
        queries = [query for _, query in iter_queries(folder / f"queries.{name}.tsv")]
        qrels = [qrel for _, qrel in iter_qrels(folder / f"qrels.{name}.tsv")]
        assert len(queries) == count
        assert [qrel.query_id for qrel in qrels] == [query.id for query in queries]
        assert all(qrel.query_id == f"q:{qrel.doc_id}" and qrel.relevance == 1 for qrel in qrels)
        judged += [qrel.doc_id for qrel in qrels]
    assert sorted(judged) == names
    assert json.loads((folder / "filters.json").read_text()) == {
        "files": 10 + 1 + 2,
        "files dropped: not valid Python": 1,
        "docstrings": 12,
        "dropped: summary too short or too long": 0,
        "dropped: body too short": 0,
        "dropped: body seen before": 1,
        "queries dropped: summary seen before": 0,
        "passages kept": 11,
        "queries kept": 11,
    }
    messages = logged(caplog)
    assert "files not parsed: made_up/bad.py" in messages
    assert "queries: train 6, validation 2, test 3" in messages
    assert "most passages: Made_Up 9, standard library 2" in messages

    table = tmp_path / "passages.parquet"
    assert collection.main(["--passages", str(folder / "collection.tsv"), "--output", str(table)]) == 0
    arguments = ["--queries", str(folder / "queries.test.tsv"), "--qrels", str(folder / "qrels.test.tsv")]
    outputs = ["--output-queries", str(tmp_path / "q.parquet"), "--output-qrels", str(tmp_path / "r.parquet")]
    assert split.main([*arguments, "--passages", str(table), *outputs]) == 0


def test_threads_and_repetition_change_no_byte(installation):
    _, first, _ = installation()
    _, second, _ = installation("--threads", "2", folder="again")
    assert {path.name: path.read_bytes() for path in first.iterdir()} == {
        path.name: path.read_bytes() for path in second.iterdir()
    }


def test_other_files_in_the_folder_stay(installation, tmp_path):
    touch(tmp_path, "raw/mine.txt")
    assert installation()[0] == 0
    assert (tmp_path / "raw" / "mine.txt").exists()


INSTALL = "run `pip install -r {lock}`"


@pytest.mark.parametrize(
    ("pins", "complaint"),
    [
        ("absent-package==1\n", f"{{lock}}: found absent-package not installed, expected absent-package==1; {INSTALL}"),
        ("made-up==1.1\n", f"{{lock}}: found made-up 1.0+local installed, expected made-up==1.1; {INSTALL}"),
        ("made-up==1.0+cpu\n", f"{{lock}}: found made-up 1.0+local installed, expected made-up==1.0+cpu; {INSTALL}"),
        (
            "unrecorded==2.0\n",
            f"{{lock}}: found unrecorded without a list of its files, expected a package installed by pip; {INSTALL}",
        ),
        ("# nothing\n", "{lock}: found no packages, expected lines of name==version; name the lock file"),
    ],
)
def test_wrong_installation_is_refused(installation, caplog, pins, complaint):
    status, folder, lock = installation(pins=pins)
    assert status == 1
    assert logged(caplog, "ERROR") == [complaint.format(lock=lock)]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--min-query-words", "6"), "6 to 5 query words, 5 passage words, 1 threads"),
        (("--min-query-words", "0"), "0 to 5 query words, 5 passage words, 1 threads"),
        (("--min-passage-words", "0"), "3 to 5 query words, 0 passage words, 1 threads"),
        (("--threads", "0"), "3 to 5 query words, 5 passage words, 0 threads"),
    ],
)
def test_impossible_numbers_are_refused(installation, caplog, options, found):
    status, folder, _ = installation(*options)
    assert status == 1
    assert logged(caplog, "ERROR") == [
        f"command line: found {found}, expected positive numbers, and no larger minimum than maximum; "
        "correct the options"
    ]
    assert not folder.exists()
