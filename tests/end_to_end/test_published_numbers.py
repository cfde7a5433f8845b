"""Published numbers of published runs, reproduced from the files to the page, on the real judgements of TREC DL."""

import json
from pathlib import Path

import pytest
import yaml

from cort import collection, evaluate, import_run, reproduction, split
from tests.support.common import command_line

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
META, SAMPLE = DATA / "msmarco-meta", DATA / "msmarco-sample"
pytestmark = pytest.mark.skipif(not (META.exists() and SAMPLE.exists()), reason="the real data is not here")

RUNS = {"bm25": "BM25", "tas-b": "D_BERT_KD_TASB"}
PAPER = {
    "title": "Runs of others",
    "reference": "The files' own publishers",
    "reasons": {"invented": "The number was made up."},
    "tolerances": {"file": {"within": 0.0005, "because": "the same file by the same rules; rounding remains"}},
    "tables": {
        "table-1": {
            "number": "Table 1",
            "title": "nDCG@10 of published runs.",
            "measure": "nDCG@10",
            "tolerance": "file",
            "columns": [{"label": "2019", "split": "dl19"}, {"label": "2020", "split": "dl20"}],
            "rows": [
                {"label": "BM25", "system": "bm25", "values": [0.5058, 0.4796]},
                {"label": "TAS-B", "system": "tas-b", "values": [0.7210, 0.6854]},
                {"label": "TAS-B, wrong", "system": "tas-b", "values": [{"value": 0.7220, "why": ["invented"]}, None]},
                {"label": "Somebody else", "values": [0.5, 0.5]},
                {"label": "Not run here", "system": "cort", "values": [0.6, None]},
            ],
        }
    },
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The stages' own tables of both years: every passage that judgements or runs name, with its text if it is here."""
    folder = tmp_path_factory.mktemp("rehearsal")
    names = [(year, META / f"qrels.{year}-passage.txt") for year in ("dl19", "dl20")]
    named = {line.split()[2] for _, path in names for line in path.read_text().splitlines()}
    named |= {line.split()[2] for path in META.glob("run.*.trec") for line in path.read_text().splitlines()}
    texts = dict(line.split("\t", 1) for line in (SAMPLE / "collection.tsv").read_text("utf-8").splitlines())
    lines = [f"{doc_id}\t{texts.get(doc_id, 'text not at hand')}\n" for doc_id in sorted(named)]
    (folder / "collection.tsv").write_text("".join(lines), "utf-8")
    options = ["--passages", str(folder / "collection.tsv"), "--output", str(folder / "passages.parquet")]
    assert collection.main(options) == 0
    for year, qrels in names:
        topics = next(META.glob(f"topics.{year}*")).read_text("utf-8")
        (folder / f"{year}.tsv").write_text(topics.replace("\r\n", "\n"), "utf-8")
        files = {"queries": folder / f"{year}.tsv", "qrels": qrels, "passages": folder / "passages.parquet"}
        files |= {f"output-{name}": folder / f"{year}.{name}.parquet" for name in ("queries", "qrels")}
        assert split.main(command_line(files)) == 0
    return folder


@pytest.fixture(scope="module")
def numbers(tables):
    """What the comparison says of each number, by row and column."""
    measures = []
    for year in ("dl19", "dl20"):
        for system, name in RUNS.items():
            run, output = tables / f"{year}.{system}.trec", tables / f"{year}.{system}.json"
            queries = ["--queries", str(tables / f"{year}.queries.parquet")]
            published = ["--run", str(META / f"run.{name}.{year}.trec"), "--passages", str(tables / "passages.parquet")]
            assert import_run.main([*published, *queries, "--tag", system, "--output", str(run)]) == 0
            judged = ["--qrels", str(tables / f"{year}.qrels.parquet"), "--relevance-level", "2"]
            named = ["--system", system, "--split", year, "--measures", "nDCG@10", "RR@1000"]
            outputs = ["--output", str(output), "--output-per-query", str(output.with_suffix(".parquet"))]
            outputs += ["--output-recall", str(output.with_suffix(".csv"))]
            assert evaluate.main(["--run", str(run), *queries, *judged, *named, *outputs]) == 0
            measures.append(str(output))
    (tables / "others.yaml").write_text(yaml.safe_dump(PAPER, sort_keys=False), "utf-8")
    options = ["--title", "Rehearsal", "--dataset", "real", "--papers", str(tables / "others.yaml")]
    assert reproduction.main([*options, "--measures-files", *measures, "--output-folder", str(tables / "out")]) == 0
    found = json.loads((tables / "out" / "reproduction.json").read_text("utf-8"))["papers"][0]
    assert found["counts"] == {"within": 4, "off": 1, "not run": 3, "cannot be computed": 0}
    return {(one["row"], one["column"]): one for one in found["numbers"]}


@pytest.mark.parametrize("row", ["BM25", "TAS-B"])
@pytest.mark.parametrize("column", ["2019", "2020"])
def test_published_numbers_are_reproduced(numbers, row, column):
    number = numbers[row, column]
    assert number["mark"] == "within"
    assert abs(number["ours"] - number["published"]) <= 0.0005
