"""Collections from ir_datasets, Hugging Face and a folder, from their source to runs and report."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from cort.formats.runs import read_run
from tests.support.common import ROOT, texts_by_id
from tests.support.forking import succeed
from tests.support.irds import write_beir
from tests.support.sandbox import TINY, copy_with_tiny
from tests.support.workflow import planned

pytestmark = pytest.mark.slow

RANKED = ("runs/test/bm25.trec", "measures/test/bm25.parquet", "provenance.json")
NFCORPUS = ROOT.parent / "shared" / "data" / "nfcorpus"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The project with the tiny experiment."""
    return copy_with_tiny(tmp_path_factory.mktemp("sources") / "tree")


def rows_of(path):
    """Split texts at the first tab, and judgements into their fields."""
    lines = path.read_text("utf-8").splitlines()
    return [line.split() if "qrels" in path.name else line.split("\t", 1) for line in lines]


def build(tree, name, collection, split, *targets):
    """Build these results of an experiment of BM25; return their folder, and the output."""
    config = {"dataset": name, "collection": collection, "splits": {"test": split}, "depth": 50, "protect": False}
    config |= {"systems": {"bm25": {"retrieve": "bm25"}}}
    (tree / f"{name}.yaml").write_text(yaml.safe_dump(config), "utf-8")
    files = [f"results/{name}/{target}" for target in targets]
    output = succeed(tree, "snakemake", "--cores", 2, *files, "--configfile", f"{name}.yaml")
    return tree / "results" / name, output


@pytest.fixture(scope="module")
def plain(tree):
    """Results of the files of the tiny experiment."""
    tiny = yaml.safe_load((tree / TINY).read_text("utf-8"))
    return build(tree, "plain", tiny["collection"], tiny["splits"]["test"], *RANKED)[0]


def texts_of(tree):
    tiny = yaml.safe_load((tree / TINY).read_text("utf-8"))
    test = tiny["splits"]["test"]
    names = (tiny["collection"]["passages"], test["queries"], test["qrels"])
    return [rows_of(tree / name) for name in names]


def as_beir(tree, folder):
    """Write the tiny experiment in the layout of BEIR."""
    passages, queries, qrels = texts_of(tree)
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", passages), ("queries", queries)):
        lines = [json.dumps({"_id": key, "title": "", "text": text}) + "\n" for key, text in texts]
        (folder / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    judged = ["query-id\tcorpus-id\tscore", *(f"{query}\t{doc}\t{grade}" for query, _, doc, grade in qrels)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n", "utf-8")


def as_mteb(tree, folder):
    """Write the tiny experiment in the layout of MTEB."""
    passages, queries, qrels = texts_of(tree)
    for name, texts in (("corpus", passages), ("queries", queries)):
        (folder / name).mkdir(parents=True)
        ids, contents = zip(*texts, strict=True)
        table = pa.table({"_id": ids, "title": [""] * len(ids), "text": contents})
        pq.write_table(table, folder / name / f"{name}-00000-of-00001.parquet")
    (folder / "qrels").mkdir()
    columns = {"query-id": [row[0] for row in qrels], "corpus-id": [row[2] for row in qrels]}
    table = pa.table(columns | {"score": [int(row[3]) for row in qrels]})
    pq.write_table(table, folder / "qrels" / "test-00000-of-00001.parquet")


def check_the_same(results, plain):
    """Runs and measures per query are the same bytes as those of plain files."""
    for name in RANKED[:2]:
        assert (results / name).read_bytes() == (plain / name).read_bytes()
    inputs = json.loads((results / "provenance.json").read_text("utf-8"))["inputs"]
    assert len(inputs) > 1 and all(len(file["sha256"]) == 64 for file in inputs)


@pytest.mark.parametrize("write", [as_beir, as_mteb])
def test_layouts_of_hugging_face_give_the_runs_of_plain_files(tree, plain, write):
    name = write.__name__.removeprefix("as_")
    write(tree, tree / name)
    check_the_same(build(tree, f"hf-{name}", {"hf": name}, {"hf": "test"}, *RANKED)[0], plain)


@pytest.mark.skipif(not NFCORPUS.is_dir(), reason="no NFCorpus")
def test_ir_datasets_gives_the_runs_of_plain_files(tree, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tree / "irds"))
    passages, queries, qrels = (NFCORPUS / name for name in ("collection.tsv", "queries.test.tsv", "qrels.test.tsv"))
    rest = {"title": "", "metadata": {"url": ""}}
    texts = ([{"_id": key, "text": text, **rest} for key, text in rows_of(path)] for path in (passages, queries))
    write_beir(tree / "irds", "nfcorpus", *texts, {"test": [(row[0], row[2], row[3]) for row in rows_of(qrels)]})
    files = {"queries": str(queries), "qrels": str(qrels)}
    plain, _ = build(tree, "nfcorpus", {"passages": str(passages)}, files, *RANKED)
    results, _ = build(tree, "irds", {"irds": "beir/nfcorpus/test"}, {"irds": "beir/nfcorpus/test"}, *RANKED)
    check_the_same(results, plain)


def test_a_changed_file_of_a_folder_changes_its_own_passages_only(tree):
    folder = tree / "handbook"
    (folder / "guide").mkdir(parents=True)
    for number in range(5):
        sentences = " ".join(f"Part {number} says sentence {place} of many." for place in range(40))
        (folder / "guide" / f"{number}.md").write_text(f"# Chapter {number}\n\n## Begin\n\n{sentences}\n", "utf-8")
    (folder / "empty.txt").write_bytes(b"")
    (folder / "page.html").write_text("<h1>Page</h1><p>Unusual zebras.</p><script>var lion</script>", "utf-8")
    (tree / "queries.txt").write_text("1\tunusual zebras\n2\tpart 3 sentence\n", "utf-8")
    collection = {"folder": "handbook", "passages": {"words": 60, "overlap": 20}}
    targets = (RANKED[0], "collection/inspection.json")

    def build_again():
        return build(tree, "handbook", collection, {"queries": "queries.txt"}, *targets)

    results, _ = build_again()
    before = texts_by_id(results / "collection/passages.parquet")
    assert not any("lion" in text for text in before.values())
    first = read_run(results / "runs/test/bm25.trec")[0]
    assert first.doc_ids[0] == "page.html#0"
    counts = json.loads((results / "raw/imported.json").read_text("utf-8"))
    assert (counts["documents"], counts["passages"]) == (6, len(before))
    assert sum(count for name, count in counts.items() if name.startswith("files: ")) == 1
    assert "an empty file" in (results / targets[1]).read_text("utf-8")
    (folder / "guide" / "3.md").write_text("# Chapter 3\n\nRewritten in a word.\n", "utf-8")
    assert planned(build_again()[1])["collection"] == 1
    after = texts_by_id(results / "collection/passages.parquet")
    others = {key: text for key, text in before.items() if not key.startswith("guide/3.md#")}
    assert {key: text for key, text in after.items() if not key.startswith("guide/3.md#")} == others
    assert after["guide/3.md#0"].endswith("Rewritten in a word.")
    assert "Nothing to be done" in build_again()[1]
