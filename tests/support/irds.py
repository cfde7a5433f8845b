"""Small collections in the layouts in which ir_datasets keeps those of their names, in a home of its own."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.archives import tar_of, zip_of
from tests.support.common import ROOT, json_lines, write_file

#: numbers of Cranfield's documents, queries and judgements, which ir_datasets knows
CRANFIELD = (1400, 225, 1837)


def run_with(home, code, *arguments, **environment):
    """Run Python code in a fresh process that looks for datasets in `home`."""
    variables = os.environ | {"IR_DATASETS_HOME": str(home), "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)


def put(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data)


def put_tar(path, members):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_of(*members.items()))


def write_beir(home, name, documents, queries, qrels):
    """Write a BEIR dataset; `qrels` is split -> rows."""
    files = {"corpus.jsonl": json_lines(documents), "queries.jsonl": json_lines(queries)}
    for split, rows in qrels.items():
        lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in rows)]
        files[f"qrels/{split}.tsv"] = "\n".join(lines) + "\n"
    put(Path(home) / "beir" / name / "source.zip", zip_of(*((f"{name}/{file}", text) for file, text in files.items())))


def write_antique(home):
    folder = Path(home) / "antique"
    put(folder / "collection.tsv", "2020338_0\tA small group.\n1_0\t  two  spaces and “quotes” \n174_1\t\n")
    put(folder / "test/queries.txt", "3990512\thow can we get concentration?\n714612\tWhy Naïve?\n")
    put(folder / "test/qrels", "3990512 U0 1_0 4\n3990512 Q0 174_1 1\n714612 U0 2020338_0 2\n")


def write_cranfield(home, documents, queries, qrels):
    """Write texts as (title, text), queries, and rows (number of the query, number of the document, grade)."""
    members = {
        "cran.all.1400": "".join(
            f".I {number}\n.T\n{title}\n.A\nbrenckman,m.\n.B\nj. ae. scs. 25, 1958, 324.\n.W\n{text}\n"
            for number, (title, text) in enumerate(documents, 1)
        ),
        "cran.qry": "".join(f".I {number:03}\n.W\n{text}\n" for number, text in enumerate(queries, 1)),
        "cranqrel": "".join(" ".join(map(str, row)) + "\n" for row in qrels),
    }
    put_tar(Path(home) / "cranfield" / "cran.tar.gz", members)


def write_whole_cranfield(home):
    """Write as many documents, queries and judgements as Cranfield has; query n repeats words of document n."""
    documents, queries, qrels = CRANFIELD
    words = ["wing", "flow", "plate", "jet", "heat", "shock", "layer", "drag", "lift", "wave", "mach"]

    def text(number):
        return f"{words[number % 11]} {words[number // 11 % 11]} {words[number // 121 % 11]} of model {number}"

    rows = [(n % queries + 1, n % queries + n // queries * 100 + 1, 2) for n in range(qrels)]
    passages = [(f"report {n}", text(n)) for n in range(1, documents + 1)]
    write_cranfield(home, passages, [text(n) for n in range(1, queries + 1)], rows)


def write_vaswani(home):
    members = {
        "doc-text": "1\ncompact memories have flexible\ndata storage system\n   /\n2\nan electronic\n   /\n",
        "query-text": "1\nMEASUREMENT OF DIELECTRIC CONSTANT\nOF LIQUIDS\n/\n2\nAN AMPLIFIER\n/\n",
        "rlv-ass": "1\n 2\n   /\n2\n   1   2\n   /\n",
    }
    put_tar(Path(home) / "vaswani" / "npl.tar.gz", members)


def write_msmarco_document(home):
    folder = Path(home) / "msmarco-document"
    texts = {
        "D1": "https://a.example/\nA title here\nThe body begins\nand goes on.\n\nAnother  paragraph\n",
        "D2": "https://b.example/\n\nOnly a body\n",
        "D3": "https://c.example/\n.\n\n",
    }
    records = (f"<DOC>\n<DOCNO>{name}</DOCNO>\n<TEXT>\n{text}</TEXT>\n</DOC>\n" for name, text in texts.items())
    put(folder / "collection.tsv.gz", "".join(records))
    put(folder / "dev/queries.tsv.gz", "174249\tdoes xpress bet charge\n320792\thow much is a cost\n")
    put(folder / "dev/qrels.gz", "174249 0 D1 1\n320792 0 D2 1\n")
