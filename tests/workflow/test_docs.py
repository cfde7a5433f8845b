from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import cort
from cort.experiment.checks import complete
from tests.support.common import ROOT
from tests.support.workflow import RULES, command_of

DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "config" / "README.md", *(ROOT / "docs").glob("*.md")]


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


def test_rules_that_run_a_stage_of_another_name_are_listed() -> None:
    found = re.findall(r"`(\w+)`\s+\(`([\w ]+)`\)", (ROOT / "docs" / "outputs.md").read_text("utf-8"))
    assert found == sorted((rule, command_of(rule)) for rule in RULES if command_of(rule) != rule)


def test_the_recall_of_the_method_is_that_of_its_paper() -> None:
    paper = yaml.safe_load((ROOT / "config" / "papers" / "cort-2021.yaml").read_text("utf-8"))
    rows = {row["label"]: row["values"] for row in paper["tables"]["table-1"]["rows"]}
    bm25, cort, both = (rows[name] for name in ("BM25", "CoRT", "CoRT+BM25"))
    # At every cutoff.
    assert all(one < other for one, other in zip(bm25[2:], cort[2:], strict=True))
    expected = tuple(f"{values[-1] / 100:.3f}" for values in (bm25, cort, both))
    pattern = r"R@1000 (0\.\d+) for BM25, (0\.\d+) for CoRT and (0\.\d+) for both"
    assert re.findall(pattern, (ROOT / "README.md").read_text("utf-8")) == [expected]


def test_the_version_is_said_alike() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    latest = re.search(r"^## \[(.*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert latest is not None
    assert (citation["version"], str(citation["date-released"])) == latest.groups()
    assert citation["version"] == cort.__version__
