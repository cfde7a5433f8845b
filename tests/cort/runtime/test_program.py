import json
import shutil

import pytest

from cort.runtime import program
from cort.runtime.program import program_of
from tests.support.common import ROOT

LOSSES = "cort/training/losses.py"


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """The program of a module in a copy of the project in which one file was changed by a function of its text."""
    trees = []

    def read(module, path=None, change=str):
        root = tmp_path / f"tree{len(trees)}"
        trees.append(root)
        shutil.copytree(ROOT / "cort", root / "cort", ignore=shutil.ignore_patterns("__pycache__"))
        if path is not None:
            (root / path).write_text(change((root / path).read_text("utf-8")), "utf-8")
        monkeypatch.setattr(program, "ROOT", root)
        return program_of(module)

    return read


def differing(before, after):
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def test_what_a_stage_imports_is_its_program_at_once_or_later_and_nothing_of_the_system():
    found = program_of("cort.train")
    assert {"cort/train.py", LOSSES, "cort/training/parallel.py", "cort/__init__.py"} <= found.keys()
    assert not any(name.startswith(("cort/runtime/", "cort/settings/")) for name in found)
    # What a config says of labels and titles is shown in the report.
    assert "cort/settings/config.py" in program_of("cort.report")
    assert not {"cort/report.py", "cort/retrieval/bm25.py"} & found.keys()
    assert all(len(value) == 16 for value in found.values())
    assert list(found) == sorted(found)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + "\n# A comment.\n",
        lambda text: text.replace('"""', '"""In other words: ', 1),
        lambda text: text.replace("\n\n\n", "\n\n\n\n"),
        lambda text: f"{text}\nif TYPE_CHECKING:\n    from cort import report\n",
        lambda text: text.replace("\n\n\ndef ", '\n\n\ndef first():\n    """Return."""\n\n\ndef ', 1).replace(
            'def first():\n    """Return."""\n\n\n', "", 1
        ),
    ],
)
def test_comments_docstrings_and_formatting_are_no_change(edited, change):
    assert edited("cort.train", LOSSES, change) == program_of("cort.train") == edited("cort.train")


@pytest.mark.parametrize(
    ("module", "path", "changed"),
    [
        ("cort.train", LOSSES, {LOSSES}),
        ("cort.encode", LOSSES, set()),
        ("cort.train", "cort/runtime/files.py", set()),
        ("cort.encode", "cort/models/__init__.py", {"cort/models/__init__.py"}),
    ],
)
def test_a_new_line_changes_the_programs_that_import_it(edited, module, path, changed):
    before = edited(module)
    assert differing(before, edited(module, path, lambda text: f"{text}\nANOTHER = 1\n")) == changed


@pytest.mark.parametrize(
    ("old", "new", "commands"),
    [
        ("compress = bool(options.expansions)", "compress = True", ["bm25"]),
        ("class IvfPqOptions(IvfPq):", "class IvfPqOptions(IvfPq):\n    added: int = 0", ["ivfpq"]),
        ("from cort.formats import tables", "from cort.formats import qrels as tables", ["bm25"]),
        ('"onng": (OnngOptions, build_onng)', '"onng": (OnngOptions, build_hnsw)', ["onng"]),
        ("(COMMANDS)", "(COMMANDS or None)", ["bm25", "hnsw", "ivfpq", "onng"]),
    ],
)
def test_a_command_has_the_definitions_and_imports_it_uses_and_no_others(edited, old, new, commands):
    def change(text):
        assert old in text
        return text.replace(old, new)

    names = ["bm25", "hnsw", "ivfpq", "onng"]
    programs = {name: program_of(f"cort.index {name}") for name in names}
    changed = [name for name in names if edited(f"cort.index {name}", "cort/index.py", change) != programs[name]]
    assert changed == commands
    assert "cort/retrieval/anserini.py" in programs["bm25"]
    assert "cort/retrieval/anserini.py" not in programs["ivfpq"]


def test_what_is_for_programs_beside_type_checkers_counts(edited):
    text = "\nif TYPE_CHECKING:\n    pass\nelse:\n    from cort import report\n"
    found = edited("cort.train", LOSSES, lambda before: before + text)
    assert differing(edited("cort.train"), found) > {LOSSES, "cort/report.py"}


def test_data_belongs_to_the_modules_that_name_it(edited):
    module, path = "cort.report", "cort/reporting/templates/report.html.jinja"
    assert differing(edited(module), edited(module, path, lambda text: f"{text}\n")) == {path}
    assert path not in program_of("cort.encode")


def test_versions_mirrors_and_modules_that_are_not_there_are_no_part_of_a_program(edited):
    later = edited(
        "cort.evaluate", "cort/__init__.py", lambda text: text.replace("__version__ = ", '__version__ = "9" or ')
    )
    assert later == edited("cort.evaluate")
    assert "cort/downloads/catalog.yaml" not in program_of("cort.download")
    assert "cort/nothing.py" not in program_of("cort.nothing")


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "null"])
def test_what_is_known_of_sources_is_kept_by_their_content_and_a_damaged_cache_is_none(edited, text):
    before = edited("cort.train")
    kept = program.ROOT / ".snakemake" / "program.json"
    assert not kept.parent.exists()
    kept.parent.mkdir()
    if text is not None:
        kept.write_text(text, "utf-8")
    program._read_cache.cache_clear()
    program._facts.cache_clear()
    assert program_of("cort.train") == before
    # As at the end of the process.
    program._write_cache(program.ROOT)
    assert {tree for tree, _ in json.loads(kept.read_text("utf-8")).values()} == set(before.values())
