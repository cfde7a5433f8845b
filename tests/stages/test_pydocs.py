import ast
import json
import random
import sysconfig

import pytest

from cort import pydocs
from cort.formats.judgements import iter_qrels
from cort.formats.passages import iter_passages
from cort.formats.topics import iter_queries
from cort.pydocs import Docstring, Options
from cort.runtime.errors import InputError
from tests.support.common import contents, logged, write_files

pytestmark = pytest.mark.usefixtures("record_messages")

LIMITS = Options(min_query_words=2, max_query_words=4, min_passage_words=3, lock="-", output_folder="-")


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
    expected = [
        ("", "Module summary on two lines.", "Module body. More of it."),
        *((":Outer", "Outer summary.", ""), (":Outer.method", "Method summary.", "Method body.")),
        *((":Outer.method.inner", "Inner summary.", "Inner body."), (":Outer.value", "Get.", "")),
        *((":Outer.value#2", "Set.", ""), (":Outer.Nested.documented", "Deep.", ""), (":branch", "First.", "")),
        *((":branch#2", "Second.", ""), (":handler", "In a handler.", ""), (":matched", "In a case.", "")),
        (":half", "Half ? character, NUL.", ""),
    ]
    found = list(pydocs.iter_docstrings("pkg/a.py", ast.parse(CODE)))
    assert found == [Docstring(f"pkg/a.py{place}", *texts) for place, *texts in expected]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        *((content, None) for content in (b"def f(:\n", b"\x00", b"# coding: nonsense\n", b"'\xff'\n")),
        # Another encoding is read as declared.
        ('# coding: latin-1\n"""Café."""\n'.encode("latin-1"), [Docstring("a.py", "Café.", "")]),
    ],
)
def test_invalid_python_is_none_and_declared_encodings_are_read(tmp_path, content, expected):
    path = tmp_path / "a.py"
    path.write_bytes(content)
    assert pydocs.parse_files([("a.py", path)]) == [expected]


def test_long_elif_chain_needs_no_recursion():
    chain = "if x == 0: pass\n" + "".join(f"elif x == {n}: pass\n" for n in range(1, 90))
    module = ast.parse(chain + "else:\n  def f(): 'Found.'\n")
    # Each elif nests one level deeper; grafting chains into each other imitates a long generated file.
    for _ in range(30):
        wrapper = ast.parse(chain + "else:\n  pass\n")
        last = wrapper.body[0]
        while isinstance(last.orelse[0], ast.If):
            last = last.orelse[0]
        last.orelse = module.body
        module = wrapper
    assert list(pydocs.iter_docstrings("a.py", module)) == [Docstring("a.py:f", "Found.", "")]


BODY = "one two three"
DROPPED = [f"dropped: {what}" for what in ("summary too short or too long", "body too short", "body seen before")]
DROPPED.append("queries dropped: summary seen before")


def test_filters_count_in_order_and_ignore_the_order_of_files():
    docstrings = [
        Docstring("z.py", "a later copy", BODY),
        Docstring("a.py", "two words", BODY),
        Docstring("b.py", "one", BODY),
        Docstring("c.py", "one two three four five", "short"),
        Docstring("d.py", "two words", "too short"),
        Docstring("e.py", "two words", "another body here"),
        Docstring("f.py", "one two three four", "a third body of more words"),
    ]
    passages, queries, counts = pydocs.select(docstrings, LIMITS)
    assert passages == [docstrings[1], *docstrings[5:]]
    assert queries == [docstrings[1], docstrings[6]]
    names = ("docstrings", *DROPPED, "passages kept", "queries kept")
    assert list(counts.items()) == list(zip(names, (7, 2, 1, 1, 1, 7 - 2 - 1 - 1, 3 - 1), strict=True))
    for seed in range(5):
        random.Random(seed).shuffle(docstrings)  # noqa: S311
        assert pydocs.select(docstrings, LIMITS) == (passages, queries, counts)


def test_split_is_a_partition_drawn_by_the_seed():
    queries = [Docstring(f"{n:02}.py", f"text {n}", "") for n in range(20)]
    splits = pydocs.split_queries(queries, 3, 5, seed=42)
    assert {name: len(part) for name, part in splits.items()} == {"train": 12, "validation": 3, "test": 5}
    assert sorted(query for part in splits.values() for query in part) == queries
    drawn = random.Random(42).sample(queries, 8)  # noqa: S311
    assert (splits["validation"], splits["test"]) == (sorted(drawn[:3]), sorted(drawn[3:]))
    with pytest.raises(InputError, match="--test-queries: found 10 and 10 of 20 queries, expected some left"):
        pydocs.split_queries(queries, 10, 10, seed=0)


def module(number):
    return f'"""Entity number {number}.\n\nBody of entity {number}: {"word " * number}end.\n"""\n'


@pytest.fixture
def options(tmp_path, monkeypatch):
    """Install package ``made-up`` of ten modules and a library of two; return a function that gives options.

    The package has a file of the library, too, and comes first.
    """
    site, library = tmp_path / "site", tmp_path / "library"
    files = {f"made_up/m{number}.py": module(number) for number in range(10)}
    files |= {"made_up/tests/t.py": module(50), "made_up/_vendor/v.py": module(51), "made_up/with blank.py": module(52)}
    files |= {"made_up/bad.py": "no python", "lib_b.py": module(3)}
    records = [*files, "../../bin/script.py", "made_up_up-1.0.dist-info/RECORD"]
    files |= {
        "made_up-1.0+local.dist-info/METADATA": "Metadata-Version: 2.1\nName: made-up\nVersion: 1.0+local\n",
        "made_up-1.0+local.dist-info/RECORD": "".join(f"{name},,\n" for name in records),
    }
    # Tests, copies and other files are left out.
    others = {f"{folder}/x.py": module(60) for folder in ("test", "p/tests", "idlelib", "site-packages/n", "p/extern")}
    write_files(site, files)
    write_files(library, {"lib_a.py": module(20), "lib_b.py": module(53), "abc.txt": module(61), **others})
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(library))
    named = {"lock": tmp_path / "requirements.lock", "validation_queries": 2, "test_queries": 3, "seed": 42}
    named |= {"min_query_words": 3, "max_query_words": 5, "min_passage_words": 5}

    def write(pins="Made_Up==1.0 \\\n    --hash=sha256:00\n", folder="raw", **more):
        named["lock"].write_text(pins)
        return {**named, "output_folder": tmp_path / folder, **more}

    return write


@pytest.fixture
def run(stage, options):
    """Run the stage; its folder."""

    def run(**changes):
        named = options(**changes)
        stage("pydocs", **named)
        return named["output_folder"]

    return run


# Locked after the quickstart's results were published.
@pytest.mark.parametrize("pin", ["faiss-cpu==1.15.1", "sentence-transformers==6.2.0"])
def test_some_packages_are_left_out(run, pin):
    assert contents(run(pins=f"Made_Up==1.0\n{pin}\n", folder="with")) == contents(run(folder="without"))


def test_stage_writes_what_the_other_stages_read(run, caplog):
    folder = run()
    splits = ("train", "validation", "test")
    names = {f"{kind}.{name}.tsv" for kind in ("queries", "qrels") for name in splits}
    assert contents(folder).keys() == {"collection.tsv", "filters.json", *names}
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
    expected = {"files": 10 + 1 + 2, "files dropped: not valid Python": 1, "docstrings": 12}
    expected |= dict(zip(DROPPED, (0, 0, 1, 0), strict=True)) | {"passages kept": 11, "queries kept": 11}
    assert json.loads((folder / "filters.json").read_text()) == expected
    assert "files not parsed: made_up/bad.py" in logged(caplog)


def test_processes_change_no_byte_and_other_files_in_the_folder_stay(run, monkeypatch):
    monkeypatch.setattr(pydocs, "FILES_PER_TASK", 3)
    first = run()
    assert contents(first) == contents(run(threads=2, folder="again"))
    (first / "mine.txt").touch()
    run()
    assert (first / "mine.txt").exists()


@pytest.mark.parametrize(
    ("pin", "words"),
    [
        ("absent==1", "absent not installed, expected absent==1"),
        *((pin, f"made-up 1.0+local installed, expected {pin}") for pin in ("made-up==1.1", "made-up==1.0+cpu")),
    ],
)
def test_a_wrong_installation_is_refused(options, refused, pin, words):
    named = options(pins=f"{pin}\n")
    assert refused("pydocs", **named).startswith(f"{named['lock']}: found {words}")
    assert not named["output_folder"].exists()
