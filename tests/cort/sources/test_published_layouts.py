"""Collections in the layouts that people bring, from their files to the tables of passages, queries and judgements."""

import pytest

from cort import collection, import_split, split
from cort.formats.tables import PASSAGES, QRELS, QUERIES, read_table
from cort.retrieval.exclusions import read_pairs
from tests.support.common import command_line, texts_by_id, write_files

BEIR_QRELS = "query-id\tcorpus-id\tscore\n"
SHARD = "00000-of-00001.parquet"
MIRACL = [{"docid": "7#0", "title": "T", "text": "one"}, {"docid": "7#1", "title": "T", "text": "two"}]
TREC_DOC = "<DOC>\n<DOCNO> {} </DOCNO>\n<TEXT>\n{}\n</TEXT>\n</DOC>\n"


def beir(*documents, query="q1", title="T"):
    """The files of BEIR's archives, whose first document is relevant."""
    return {
        "corpus.jsonl": [{"_id": name, "title": title, "text": text, "metadata": {}} for name, text in documents],
        "queries.jsonl": [{"_id": query, "text": "which?", "metadata": {}}],
        "qrels/test.tsv": f"{BEIR_QRELS}{query}\t{documents[0][0]}\t1\n",
    }


HF = {"hf": ""}, {"hf": "", "part": "test"}
NANO = {
    f"corpus/corpus-{SHARD}": [{"_id": "d1", "title": "", "text": "one"}],
    f"queries/queries-{SHARD}": [{"_id": "q1", "text": "which?"}],
    f"qrels/train-{SHARD}": [{"query-id": "q1", "corpus-id": "d1"}],
}
TREC = {
    "docs": TREC_DOC.format("FBIS3-1", "one") + TREC_DOC.format("FBIS3-2", "two"),
    "queries": "<top>\n<num> Number: 051\n<title> Topic: Airbus\n<desc> Description:\nx\n</top>\n",
    "qrels": "51 0 FBIS3-1 1\n51 0 FBIS3-2 0\n",
}
COVID = {
    "docs": 'cord_uid,sha,title,abstract\nug7v899j,a,T,"One, two"\n02tnwd4m,b,U,\n',
    "queries": '<topics>\n<topic number="1">\n<query>origin</query>\n</topic></topics>',
    "qrels": "1 4.5 ug7v899j 2\n1 0.5 02tnwd4m -1\n1 4 absent 0\n",
}
CRANFIELD = {
    "docs": ".I 1\n.T\none\n.A\nx\n.W\none two\n.I 2\n.T\n.W\n",
    "queries": ".I 004\n.W\nwhat laws\n",
    "qrels": "1 1 2\n1 2 -1\n",
}
CACM = {
    "docs": ".I 1410\n.T\none\n.B\nCACM\n.X\n1\t5\t1\n",
    "queries": ".I 1\n.W\n what\n.N\n 1. Name\n",
    "qrels": "01 1410  0 0\n",
}
BRIGHT = {
    "docs.parquet": [{"id": "a/b_1.txt", "content": "one"}, {"id": "a/b 2.txt", "content": "two"}],
    "queries.parquet": [{"id": "0", "query": "which", "reasoning": "x", "excluded_ids": ["N/A"]}],
    "qrels": f"{BEIR_QRELS}0\ta/b_1.txt\t1\n",
    "excluded.tsv": "query-id\tcorpus-id\n0\ta/b 2.txt\n",
}
FORUM = {f"android/{name}": content for name, content in beir(("5", "one")).items()}
FORUM |= {"english/corpus.jsonl": [{"_id": "5", "title": "", "text": "other"}]}
JUDGED = {"queries": "queries", "qrels": "qrels"}
FILES = {"passages": "docs"}, JUDGED
FOLDER = {"folder": "docs"}, JUDGED | {"aggregate": "max"}
PAGES = {"docs/a.md": "# A\n\nOne.\n", "docs/b/c.html": "<title>C</title>Two."}
# fmt: off
# name -> files, what `collection` and `split` are called with, passages, queries and judgements
LAYOUTS = {
    "BEIR": (beir(("d1", "one"), ("d2", "two")), *HF, {"d1": "T one", "d2": "T two"}, {"q1": "which?"}, "q1 d1 1"),
    "NanoBEIR": (NANO, {"hf": ""}, {"hf": "", "part": "train"}, {"d1": "one"}, {"q1": "which?"}, "q1 d1 1"),
    "TREC": (TREC, *FILES, {"FBIS3-1": "one", "FBIS3-2": "two"}, {"51": "Airbus"}, "51 FBIS3-1 1,51 FBIS3-2 0"),
    "TREC-COVID": (
        COVID, {"passages": "docs", "id": "cord_uid", "text": "abstract"}, JUDGED,
        {"ug7v899j": "T One, two", "02tnwd4m": "U"}, {"1": "origin"}, "1 ug7v899j 2,1 02tnwd4m -1,1 absent 0",
    ),
    "Cranfield": (CRANFIELD, *FILES, {"1": "one one two", "2": "."}, {"1": "what laws"}, "1 1 2,1 2 -1"),
    "CACM": (CACM, *FILES, {"1410": "one"}, {"1": "what"}, "1 1410 1"),
    "MS MARCO": (
        {"docs": "0\tone\n1\t“two”\n", "queries": "300\twhich\n301\tno\n", "qrels": "300\t0\t1\t1\n"}, *FILES,
        {"0": "one", "1": "“two”"}, {"300": "which"}, "300 1 1",
    ),
    "MIRACL": (
        {"docs.jsonl": MIRACL, "queries": "9#0\t¿qué?\n", "qrels": "9#0\tQ0\t7#1\t1\n9#0\tQ0\t7#0\t0\n"},
        {"passages": "docs.jsonl"}, JUDGED, {"7#0": "T one", "7#1": "T two"}, {"9#0": "¿qué?"}, "9#0 7#1 1,9#0 7#0 0",
    ),
    "CIRAL, with judged queries whose texts are not public": (
        {"docs.jsonl": MIRACL[:1], "queries": "1\twhich\n", "qrels": "1 Q0 7#0 1\n2 Q0 7#0 1\n"},
        {"passages": "docs.jsonl"}, JUDGED, {"7#0": "T one"}, {"1": "which"}, "1 7#0 1",
    ),
    "BRIGHT": (
        BRIGHT, {"passages": "docs.parquet", "text": "content"}, JUDGED | {"queries": "queries.parquet"},
        {"a/b_1.txt": "one", "a/b%202.txt": "two"}, {"0": "which"}, "0 a/b_1.txt 1",
    ),
    "ArguAna, whose queries are documents": (
        beir(("pro01a", "one"), ("pro01b", "two"), query="pro01b"), *HF,
        {"pro01a": "T one", "pro01b": "T two"}, {"pro01b": "which?"}, "pro01b pro01a 1",
    ),
    "Quora, with the same text twice": (
        beir(("1", "one?"), ("2", "one?"), title=""), *HF, {"1": "one?", "2": "one?"}, {"q1": "which?"}, "q1 1 1",
    ),
    "FiQA, with empty documents": (
        beir(("3", "one"), ("31", ""), query="8", title=""), *HF, {"3": "one", "31": "."}, {"8": "which?"}, "8 3 1",
    ),
    "CQADupStack": (
        FORUM, {"hf": "#android"}, {"hf": "#android", "part": "test"}, {"5": "T one"}, {"q1": "which?"}, "q1 5 1",
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
