from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

import cort
from cort.experiment.checks import complete, read
from cort.experiment.keys import Experiment
from cort.runtime.keys import keys_of, part_of
from cort.runtime.reading import mistakes_in
from tests.support.common import COMMIT, ROOT
from tests.support.coverage import published
from tests.support.workflow import RULES, command_of

PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "config/README.md")), *PAGES]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
# Output and diagrams are no code; the examples of the guide, and those of Python, are run by other tests.
READ = {"text", "mermaid"}
RUN = {("contributing.md", "python"), ("contributing.md", "diff"), ("api.md", "python")}


def anchors(document: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    text = re.sub(r"```.*?```", "", document.read_text("utf-8"), flags=re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if not link.startswith("https://"):
            name, _, anchor = link.partition("#")
            target = document.parent / name if name else document
            if not target.exists() or (anchor and anchor not in anchors(target)):
                broken.append(link)
    assert not broken


def test_the_experiment_in_the_readme_is_right() -> None:
    block = re.search(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    assert complete(yaml.safe_load(block[1]), "README.md")["systems"]


def yaml_blocks():
    """Each YAML block of the pages, and where it begins; those of the guide are built by `test_extension.py`."""
    for page in PAGES:
        if page.name == "contributing.md":
            continue
        text = page.read_text("utf-8")
        for block in re.finditer(r"^( *)```yaml\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
            line = text[: block.start()].count("\n") + 1
            yield pytest.param(textwrap.dedent(block[2]), f"docs/{page.name}:{line}", id=f"{page.name}:{line}")


@pytest.mark.parametrize(("block", "place"), list(yaml_blocks()))
def test_the_keys_of_pages_are_keys_of_experiments(block, place, tmp_path):
    path = tmp_path / "block.yaml"
    path.write_text(block.replace("COMMIT", COMMIT), "utf-8")
    config = read(path)
    if {"dataset", "systems"} <= config.keys():
        assert complete(config, place)["systems"]
        return
    # A part of an experiment, of which other parts are not checked.
    assert config.keys() <= keys_of(Experiment).keys()
    for name, value in config.items():
        key = part_of(Experiment, name)
        assert list(mistakes_in(value, key.hint, key.rules)) == []


def test_every_page_is_in_the_navigation():
    def files(entry):
        parts = entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else None
        return [entry] if parts is None else [file for part in parts for file in files(part)]

    named = files(SITE["nav"])
    assert len(named) == len(set(named))
    # `make docs` writes the stages.
    expected = {"README.md", "CHANGELOG.md", "config/README.md", "config/ablations/README.md", "docs/stages.md"}
    assert set(named) == expected | {f"docs/{page.name}" for page in PAGES}


def test_the_site_loads_nothing_from_the_network():
    assert SITE["theme"]["font"] is False
    assert SITE["plugins"] == ["search"]
    assert not SITE.keys() & {"extra_javascript", "extra_css", "extra", "hooks"}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_of_pages_is_of_a_kind_that_is_tested(page):
    fences = re.findall(r"^ *```(\w*)\n.*?^ *```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    unknown = {fence for fence in fences if fence not in READ | {"yaml"} and (page.name, fence) not in RUN}
    assert not unknown, "commands are indented by four; output is ```text"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem.startswith("start-")], ids=lambda path: path.name)
def test_first_pages_are_short(page):
    assert len(page.read_text("utf-8").splitlines()) <= 40


def test_rules_that_run_a_stage_of_another_name_are_listed() -> None:
    found = re.findall(r"`(\w+)`\s+\(`([\w ]+)`\)", (ROOT / "docs" / "outputs.md").read_text("utf-8"))
    assert found == sorted((rule, command_of(rule)) for rule in RULES if command_of(rule) != rule)


def test_the_recall_of_the_method_is_that_of_its_paper() -> None:
    table = [one for one in published() if (one["paper"], one["table"]) == ("CoRT (2021)", "Table 1")]
    bm25, cort, both = (
        {one["column"]: float(one["value"]) for one in table if one["row"] == name and one["column"].startswith("R@")}
        for name in ("BM25", "CoRT", "CoRT+BM25")
    )
    # At every cutoff.
    assert all(bm25[cutoff] < cort[cutoff] for cutoff in bm25)
    expected = tuple(f"{values['R@1000']:.3f}" for values in (bm25, cort, both))
    pattern = r"R@1000 (0\.\d+) for BM25, (0\.\d+) for CoRT and (0\.\d+) for both"
    assert re.findall(pattern, (ROOT / "README.md").read_text("utf-8")) == [expected]


def test_the_version_is_said_alike() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    latest = re.search(r"^## \[(.*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert latest is not None
    assert (citation["version"], str(citation["date-released"])) == latest.groups()
    assert citation["version"] == cort.__version__
