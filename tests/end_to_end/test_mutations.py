"""Every artifact of the tiny experiment, flipped, cut and swapped, before each stage that reads it: refused in a line.

The command lines are those that the build logged; a search reads the stored settings and what its systems need.
"""

import importlib
import shlex
import shutil
from itertools import chain
from pathlib import Path

import pytest

from cort.experiment.stored import open_systems, read_experiment
from cort.online.searcher import opened_files
from cort.settings import paths as names

pytestmark = pytest.mark.slow
RESULTS = Path("results/tiny")
SEARCH = "cort.search --results results/tiny --query neriga --systems"
#: read by stages of every room; their files are those in which most can be wrong
HANDFUL = (
    *(
        "encoders/encoder/best/document_0_Transformer/model.safetensors",
        "tokens/small/passages.arrow",
        "runs/test/bm25.trec",
        "scores/",
    ),
    *("measures/test/", "collection/passages.parquet", "lexical/bm25/index/_0.fnm"),
    *("onng/encoder/grp", "hnsw/encoder/ids.arrow"),
)


def command_lines(tree):
    """Words of every stage's command line, its module first, from the first lines of the logs."""
    for path in sorted((tree / "logs").rglob("*.log")):
        _, found, words = path.read_text("utf-8").partition("\n")[0].partition(": python -m ")
        if found:
            yield shlex.split(words)


def inputs_of(words):
    """Paths that a command line names, but for its outputs."""
    option = ""
    for word in words[1:]:
        option = word if word.startswith("--") else option
        if not option.startswith(("--output", "--log")):
            yield from (Path(part) for part in (word, word.partition("=")[2]) if part.startswith("results/"))


def files_of(path):
    """Artifacts in a folder, or the one that a path names."""
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [one for one in found if one.is_file() and not one.name.endswith(".sum")]


@pytest.fixture(scope="module")
def tree(built, tmp_path_factory):
    """A copy that is changed, and put right again, by each test."""
    return shutil.copytree(built, tmp_path_factory.mktemp("mutations") / "tree", symlinks=True)


@pytest.fixture(scope="module")
def readers(tree):
    """Artifact -> command lines of the stages that read it."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tree)
        stored = read_experiment(RESULTS / "experiment.yaml")
        systems = stored.searchable
        searched = [Path(stored.at(names.EXPERIMENT)), Path(stored.at(names.PASSAGES))]
        searched += opened_files(open_systems(stored, systems).values())
        commands = [(words, inputs_of(words)) for words in command_lines(tree)]
        for words, paths in [*commands, ([*SEARCH.split(), *systems], searched)]:
            for path in chain.from_iterable(map(files_of, paths)):
                found.setdefault(path, []).append(words)
    return found


def flip(content, _):
    middle = len(content) // 2
    return content[:middle] + bytes(byte ^ 1 for byte in content[middle : middle + 1]) + content[middle + 1 :]


def cut(content, _):
    """At a line, where it has lines."""
    return content[: content.rfind(b"\n", 0, -1) + 1 or len(content) // 2]


def swap(_, other):
    return other


def another_of_its_kind(path, artifacts):
    """Content of the artifact that is most like it: the same name elsewhere, or the same ending."""
    likeness = {other: (other.name == path.name, other.parent == path.parent) for other in artifacts}
    same = [other for other in sorted(artifacts) if other.suffix == path.suffix and other != path]
    contents = (other.read_bytes() for other in sorted(same, key=likeness.get, reverse=True))
    return next((content for content in contents if content != path.read_bytes()), b"another")


def check_refused(path, content, words, capsys):
    """Run a stage on changed content; what it should not do, if anything."""
    before = path.read_bytes()
    # Models may be write-protected.
    path.chmod(0o644)
    path.write_bytes(content)
    try:
        status = importlib.import_module(words[0]).main(words[1:])
    finally:
        path.write_bytes(before)
    said = capsys.readouterr().err
    errors = [line for line in said.splitlines() if " ERROR " in line]
    assert (status, len(errors), "Traceback" in said) == (1, 1, False), f"{path}, {words[0]}: {said}"
    assert f"{path}" in errors[0]


def check_all(readers, chosen, commands, capsys, mutate):
    count = 0
    for path in chosen:
        content = path.read_bytes()
        changed = mutate(content, another_of_its_kind(path, readers))
        # Of an empty file there is nothing to change.
        if changed != content:
            for words in readers[path][:commands]:
                check_refused(path, changed, words, capsys)
                count += 1
    return count


MUTATIONS = pytest.mark.parametrize("mutate", [flip, cut, swap])


@MUTATIONS
def test_a_handful_of_changed_artifacts_is_refused(tree, readers, monkeypatch, capsys, mutate):
    monkeypatch.chdir(tree)
    wanted = tuple(f"{RESULTS}/{name}" for name in HANDFUL)
    chosen = {name: next(path for path in sorted(readers) if str(path).startswith(name)) for name in wanted}
    assert check_all(readers, chosen.values(), 1, capsys, mutate) == len(HANDFUL)


@pytest.mark.exhaustive
@MUTATIONS
def test_every_changed_artifact_is_refused_by_every_stage_that_reads_it(tree, readers, monkeypatch, capsys, mutate):
    monkeypatch.chdir(tree)
    made = files_of(RESULTS)
    assert len(readers) > len(made) / 2
    assert check_all(readers, sorted(readers), None, capsys, mutate) > len(readers)


def test_the_bytes_of_the_build_come_out_of_every_fast_stage_again(tree, readers, monkeypatch):
    """What was not changed is not refused."""
    monkeypatch.chdir(tree)
    again = {"cort.fuse", "cort.rerank", "cort.evaluate", "cort.analyze", "cort.compare"}
    commands = {words[0]: words for words in chain.from_iterable(readers.values()) if words[0] in again}
    assert commands.keys() == again
    for words in commands.values():
        output = Path(words[words.index("--output") + 1])
        before = {path: path.read_bytes() for path in (output, output.with_name(f".{output.name}.sum"))}
        assert importlib.import_module(words[0]).main(words[1:]) == 0
        assert {path: path.read_bytes() for path in before} == before
