from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
import yaml

import cort
from cort.config.load import complete, read
from cort.config.root import Root
from cort.runtime.mistakes import mistakes_in
from cort.runtime.sections import hint_of, keys_of
from tests.support.common import COMMIT, ROOT
from tests.support.coverage import published
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import RULES, plan_jobs

PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "config/README.md")), *PAGES]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
# Output is no code; the examples of the guide, and those of Python, are run by other tests.
READ = {"text"}
RUN = {("contributing.md", "python"), ("contributing.md", "diff"), ("python.md", "python")}


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
    assert complete(yaml.safe_load(block[1]), "README.md").systems


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
        assert complete(config, place).systems
        return
    # A part of an experiment, of which other parts are not checked.
    assert config.keys() <= keys_of(Root).keys()
    for name, value in config.items():
        assert mistakes_in(value, hint_of(keys_of(Root)[name])) == []


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


def test_the_guide_names_what_its_files_define():
    text = re.sub(r"```.*?```", "", (ROOT / "docs" / "contributing.md").read_text("utf-8"), flags=re.DOTALL)
    places = re.findall(r"((?:`\w+`(?:, | and )?)+) (?:of|in) `([\w./]+)`", text)
    assert len(places) > 10
    for names, place in places:
        found = [*(ROOT.glob(place) if "/" in place else (ROOT / "cort").rglob(place))]
        files = [file for path in found for file in (path.rglob("*.py") if path.is_dir() else [path])]
        code = "\n".join(file.read_text("utf-8") for file in files)
        for name in re.findall("`(.+?)`", names):
            assert re.search(rf"^ *(?:def |class )?{name}\b *[:=(]", code, re.MULTILINE), f"{name} of {place}"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_of_pages_is_of_a_kind_that_is_tested(page):
    fences = re.findall(r"^ *```(\w*)\n.*?^ *```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    unknown = {fence for fence in fences if fence not in READ | {"yaml"} and (page.name, fence) not in RUN}
    assert not unknown, "commands are indented by four; output is ```text"


# Questions of readers: a section, and what answers them there.
ANSWERS = {
    "my documents": ("docs/documents.md#start", "make verdict FOLDER="),
    "my model": ("docs/collections.md#released-models", "`pretrained` is a folder, or a hub name with a commit"),
    "a table of a paper": ("docs/reproduction.md#start", "make plan TABLE=cort/1"),
    "after a crash": ("docs/operations.md#after-a-crash", "Run the same command again"),
    "on SLURM": ("docs/operations.md#gpus-and-slurm", "--workflow-profile profiles/slurm"),
    "a new loss": ("docs/contributing.md#an-encoder-loss", "ENCODER_OBJECTIVES"),
    "deploy to OpenSearch": ("docs/documents.md#deploy", "targets: [opensearch"),
    "what was never run": ("docs/results.md#what-was-measured", "Never run: "),
}


@pytest.mark.parametrize(("place", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_a_question_is_answered_two_clicks_from_the_readme(place, answer):
    """One click on a page that the README links, one on a heading."""
    page, _, anchor = place.partition("#")
    assert f"]({page}" in (ROOT / "README.md").read_text("utf-8")
    headings = re.split(r"^## (.*)$", (ROOT / page).read_text("utf-8"), flags=re.MULTILINE)
    names = [re.sub(r"[^\w-]", "", name.lower().replace(" ", "-")) for name in headings[1::2]]
    sections = dict(zip(names, headings[2::2], strict=True))
    assert answer in sections[anchor]


def test_the_documentation_can_be_read():
    """Upper bounds that were agreed on: eleven pages and the README, and words beside the generated reference."""
    assert len(PAGES) == 11
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90
    written = [path for path in DOCUMENTS if path.name != "reference.md"]
    assert sum(len(path.read_text("utf-8").split()) for path in written) <= 14_500


def test_the_picture_of_the_flow_is_that_of_the_rules(tmp_path, monkeypatch):
    """A box is a file of rules; what jobs read comes from a box that leads to theirs by the arrows."""
    picture = (ROOT / "docs" / "images" / "flow.svg").read_text("utf-8")
    arrows = set(re.findall(r'data-from="(\w+)" data-to="(\w+)"', picture))
    home = {name: Path(rule.snakefile).stem for name, rule in RULES.items()}
    published = {name for name, box in home.items() if box == "publish"}
    home |= {name: "deploy" if name in ("deploy", "submission") else "report" for name in published}
    assert set(re.findall(r'<g id="(\w+)">', picture)) == {"files", *home.values()}
    monkeypatch.chdir(copy_with_tiny(tmp_path / "tree"))
    jobs = [job for job in plan_jobs(["--cores", "2", "--configfile", TINY])[0] if job.rule in home]
    maker = {path: home[job.rule] for job in jobs for path in job.outputs}
    read = {(maker.get(path, "files"), home[job.rule]) for job in jobs for path in job.inputs}
    assert arrows <= read
    led = set(arrows)
    while more := {(start, far) for start, near in led for begin, far in led if begin == near} - led:
        led |= more
    assert {(start, end) for start, end in read if start != end} <= led


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
    assert re.findall(pattern, (ROOT / "docs" / "results.md").read_text("utf-8")) == [expected]


def test_the_version_is_said_alike() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    latest = re.search(r"^## \[(.*)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert latest is not None
    assert (citation["version"], str(citation["date-released"])) == latest.groups()
    assert citation["version"] == cort.__version__
