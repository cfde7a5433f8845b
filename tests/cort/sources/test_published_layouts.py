"""Collections in the layouts that people bring, from their files to the tables of passages, queries and judgements."""

import pytest

from cort import collection, import_split, split
from cort.formats.tables import PASSAGES, QRELS, QUERIES, read_table
from cort.retrieval.exclusions import read_pairs
from tests.support.common import command_line, texts_by_id, write_files

BEIR_QRELS = "query-id\tcorpus-id\tscore\n"
CIRAL = [{"docid": "7#0", "title": "T", "text": "one"}]


BEIR = {
    "corpus.jsonl": [{"_id": f"d{row}", "title": "T", "text": text, "metadata": {}} for row, text in enumerate("xy")],
    "queries.jsonl": [{"_id": "q1", "text": "which?", "metadata": {}}],
    "qrels/test.tsv": f"{BEIR_QRELS}q1\td0\t1\n",
}
COVID = {
    "docs": 'cord_uid,sha,title,abstract\nug7v899j,a,T,"One, two"\n02tnwd4m,b,U,\n',
    "queries": '<topics>\n<topic number="1">\n<query>origin</query>\n</topic></topics>',
    "qrels": "1 4.5 ug7v899j 2\n1 0.5 02tnwd4m -1\n1 4 absent 0\n",
}
BRIGHT = {
    "docs.parquet": [{"id": "a/b_1.txt", "content": "one"}, {"id": "a/b 2.txt", "content": "two"}],
    "queries.parquet": [{"id": "0", "query": "which", "reasoning": "x", "excluded_ids": ["N/A"]}],
    "qrels": f"{BEIR_QRELS}0\ta/b_1.txt\t1\n",
    "excluded.tsv": "query-id\tcorpus-id\n0\ta/b 2.txt\n",
}
JUDGED = {"queries": "queries", "qrels": "qrels"}
FILES = {"passages": "docs"}, JUDGED
FOLDER = {"folder": "docs"}, JUDGED | {"aggregate": "max"}
PAGES = {"docs/a.md": "# A\n\nOne.\n", "docs/b/c.html": "<title>C</title>Two."}
# fmt: off
# name -> files, what `collection` and `split` are called with, passages, queries and judgements
LAYOUTS = {
    "BEIR": (
        BEIR, {"hf": ""}, {"hf": "", "part": "test"}, {"d0": "T x", "d1": "T y"}, {"q1": "which?"}, "q1 d0 1",
    ),
    "TREC-COVID": (
        COVID, {"passages": "docs", "id": "cord_uid", "text": "abstract"}, JUDGED,
        {"ug7v899j": "T One, two", "02tnwd4m": "U"}, {"1": "origin"}, "1 ug7v899j 2,1 02tnwd4m -1,1 absent 0",
    ),
    "MS MARCO": (
        {"docs": "0\tone\n1\t“two”\n", "queries": "300\twhich\n301\tno\n", "qrels": "300\t0\t1\t1\n"}, *FILES,
        {"0": "one", "1": "“two”"}, {"300": "which"}, "300 1 1",
    ),
    "CIRAL, with judged queries whose texts are not public": (
        {"docs.jsonl": CIRAL, "queries": "1\twhich\n", "qrels": "1 Q0 7#0 1\n2 Q0 7#0 1\n"},
        {"passages": "docs.jsonl"}, JUDGED, {"7#0": "T one"}, {"1": "which"}, "1 7#0 1",
    ),
    "BRIGHT": (
        BRIGHT, {"passages": "docs.parquet", "text": "content"}, JUDGED | {"queries": "queries.parquet"},
        {"a/b_1.txt": "one", "a/b%202.txt": "two"}, {"0": "which"}, "0 a/b_1.txt 1",
    ),
    "a folder of documentation": (
        PAGES | {"queries": "0\tx\n", "qrels": "0 0 a.md 1"}, *FOLDER,
        {"a.md#0": "A One.", "b/c.html#0": "C Two."}, {"0": "x"}, "0 a.md 1",
    ),
    "a folder with one table": (
        {"docs/faq.csv": "id,title,text\n7,T,One.\n", "queries": "0\tx\n", "qrels": "0 0 7 1"}, *FOLDER,
        {"7#0": "T One."}, {"0": "x"}, "0 7 1",
    ),
}
# fmt: on


def call(stage, folder, options, outputs):
    """Run a stage; options that name files, or a source in the folder itself, are completed."""
    places = {name: f"{folder}{value}" if name == "hf" else folder / value for name, value in options.items()}
    plain = {name: options[name] for name in options.keys() & {"id", "text", "part", "aggregate"}}
    assert stage.main(command_line(places | plain | outputs)) == 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_collections_as_they_are_published(tmp_path, name):
    files, documents, judged, passages, queries, qrels = LAYOUTS[name]
    source = tmp_path / "source"
    write_files(source, files)
    words = {"words": 50} if "folder" in documents else {}
    call(collection, source, documents, {"output": tmp_path / "passages.parquet", **words})
    if "hf" in judged:
        copied = {"queries": tmp_path / "q.jsonl", "qrels": tmp_path / "r.tsv"}
        outputs = {f"output-{kind}": path for kind, path in copied.items()}
        call(import_split, source, judged, outputs | {"output-sources": tmp_path / "sources.json"})
        judged = copied
    tables = {f"output-{kind}": tmp_path / f"{kind}.parquet" for kind in ("queries", "qrels")}
    call(split, source, judged, {"passages": tmp_path / "passages.parquet", **tables})
    for kind, schema, expected in (("passages", PASSAGES, passages), ("queries", QUERIES, queries)):
        assert texts_by_id(tmp_path / f"{kind}.parquet", schema) == expected
    rows = read_table(tmp_path / "qrels.parquet", QRELS).to_pylist()
    assert [" ".join(map(str, row.values())) for row in rows] == qrels.split(",")
    if "excluded.tsv" in files:
        assert {doc_id for _, doc_id in read_pairs(source / "excluded.tsv")} <= passages.keys()
