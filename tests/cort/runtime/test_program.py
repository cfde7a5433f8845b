import json
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from cort.runtime import program
from cort.runtime.commands import module_of
from cort.runtime.program import program_of
from tests.support.common import ROOT

LOSSES = "cort/training/losses.py"
#: stages with several commands
SEVERAL = ("analyze", "audit", "encode", "expand", "index", "retrieve", "tune")


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
    assert not any(name.startswith(("cort/runtime/", "cort/config/")) for name in found)
    # What a config says of labels and titles is shown in the report.
    assert "cort/config/entries.py" in program_of("cort.report")
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


COMMANDS = [f"cort.{stage} {command}" for stage in SEVERAL for command in import_module(f"cort.{stage}").COMMANDS]


def test_a_command_is_a_module_which_none_of_the_others_uses():
    paths = {f"{module_of(command).replace('.', '/')}.py": command for command in COMMANDS}
    using = {path: [command for command in COMMANDS if path in program_of(command)] for path in paths}
    assert using == {path: [command] for path, command in paths.items()}


def test_what_a_command_imports_counts_and_what_others_of_its_stage_import_does_not(edited):
    before = edited("cort.index bm25"), edited("cort.index ivfpq")
    assert "cort/retrieval/anserini.py" in before[0]
    assert "cort/retrieval/anserini.py" not in before[1]
    path = "cort/retrieval/index_bm25.py"
    assert differing(before[0], edited("cort.index bm25", path, lambda text: f"{text}\nANOTHER = 1\n")) == {path}


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


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache, which nothing of this process knows."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    forget()
    yield tmp_path / "caches" / "cort" / "program.json"
    forget()


def forget():
    program._known.cache_clear()
    program._facts.cache_clear()


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "null"])
def test_what_is_known_of_sources_is_kept_by_their_content_and_a_damaged_cache_is_none(cache, text):
    if text is not None:
        cache.parent.mkdir(parents=True)
        cache.write_text(text, "utf-8")
    before = program_of("cort.train")
    # As at the end of the process.
    program._write()
    assert {tree for tree, _ in json.loads(cache.read_text("utf-8")).values()} == set(before.values())


def test_what_the_cache_says_is_taken_and_the_oldest_of_it_forgotten(cache, monkeypatch):
    program_of("cort.train")
    monkeypatch.setattr(program, "KEPT", 2)
    program._write()
    kept = json.loads(cache.read_text("utf-8"))
    assert [*kept] == [*program._known()][-2:]
    cache.write_text(json.dumps({key: ["as kept", modules] for key, (_, modules) in kept.items()}), "utf-8")
    forget()
    assert [*program_of("cort.train").values()].count("as kept") == 2


def test_without_a_folder_for_it_there_is_no_cache(cache, tmp_path, monkeypatch):
    before = program_of("cort.train")
    (tmp_path / "caches").write_text("a file", "utf-8")
    program._write()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    program._write()
    forget()
    assert program_of("cort.train") == before
    assert (tmp_path / "caches").read_text("utf-8") == "a file"


def homeless():
    raise RuntimeError("Could not determine home directory.")
