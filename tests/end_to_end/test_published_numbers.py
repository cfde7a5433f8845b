"""Published numbers of published runs, reproduced from the files to the page, on the real judgements of TREC DL."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from cort import collection, evaluate, import_run, split
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact
from cort.reporting.published import join, read_published, values
from tests.support.common import command_line

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
META, SAMPLE = DATA / "msmarco-meta", DATA / "msmarco-sample"
pytestmark = pytest.mark.skipif(not (META.exists() and SAMPLE.exists()), reason="the real data is not here")

RUNS = {"bm25": "BM25", "tas-b": "D_BERT_KD_TASB"}
PUBLISHED = """paper,table,row,column,value,system,split,measure,candidates,note
others,Table 1,BM25,2019,.5058,bm25,dl19,nDCG@10,,
others,Table 1,BM25,2020,.4796,bm25,dl20,nDCG@10,,
others,Table 1,TAS-B,2019,.7210,tas-b,dl19,nDCG@10,,
others,Table 1,TAS-B,2020,.6854,tas-b,dl20,nDCG@10,,
others,Table 1,Not run here,2019,.6,cort,dl19,nDCG@10,,
"""


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
    """Differences of ours from what was published, by row and column."""
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
            measures.append(read_artifact(output, Measures))
    (tables / "others.csv").write_text(PUBLISHED, "utf-8")
    joined = join(
        read_published([tables / "others.csv"]), values(SimpleNamespace(measures=measures, depths=[], latencies=[]))
    )
    assert joined["ours"].count() == 4
    return joined.set_index(["row", "column"])["difference"]


@pytest.mark.parametrize("row", ["BM25", "TAS-B"])
@pytest.mark.parametrize("column", ["2019", "2020"])
def test_published_numbers_are_reproduced(numbers, row, column):
    assert abs(numbers[row, column]) <= 0.0005
