"""TREC-CAR: three pages as its publishers write them, paragraphs and topics."""

import os
import tarfile
from pathlib import Path

import pytest

from cort.formats.topics import iter_queries
from tests.support.common import ROOT, write_file
from tests.support.irds import run_with

HEADER = ["CAR", [2, []], [["enwiki", "en"], []]]
# Page -> heading, or none for the lead -> paragraphs; a link is a pair of a page and its text.
PAGES = {
    "Aftertaste": {
        "": [["Aftertaste is the taste ", ("Taste", "left in the mouth"), "."]],
        "Wine/Length": [["The aftertaste of wine lasts."], ["Tasters count seconds."]],
    },
    "Green%20sea%20turtle": {"Diet": [["Turtles eat ", ("Seagrass", "seagrass"), "."], []]},
    "Hebrew%20%27": {"History": [["It is old."]]},
}


def paragraph_id(number):
    return b"%040x" % number


def body(part):
    if isinstance(part, str):
        return [0, part]
    return [1, [0, part[0], ["Some section"], b"enwiki:" + part[0].encode(), part[1]]]


def paragraphs_of_pages():
    """Yield (topic, id, parts) of each paragraph."""
    number = 0
    for page, sections in PAGES.items():
        for heading, texts in sections.items():
            for parts in texts:
                yield f"enwiki:{page}/{heading}".rstrip("/"), paragraph_id(number), parts
                number += 1


def write_qrels(folder):
    """Write hierarchical judgements of the pages as trec-car-create does."""
    lines = (f"{topic} 0 {doc_id.decode()} 1\n" for topic, doc_id, _ in paragraphs_of_pages())
    return write_file(folder / "test.qrels", "".join(lines))


TEXTS = ["Aftertaste is the taste left in the mouth.", "The aftertaste of wine lasts.", "Tasters count seconds."]
TEXTS += ["Turtles eat seagrass.", "", "It is old."]


def test_paragraphs_are_read_by_ir_datasets_without_anything_between_their_parts(tmp_path):
    tools = pytest.importorskip("trec_car", reason="trec_car")
    cbor = pytest.importorskip("cbor", reason="trec_car")
    encoded = b"".join(cbor.dumps([0, doc_id, list(map(body, parts))]) for _, doc_id, parts in paragraphs_of_pages())
    path = write_file(tmp_path / "paragraphs.cbor", cbor.dumps(HEADER) + b"\x9f" + encoded + b"\xff")
    (tmp_path / "home" / "car").mkdir(parents=True)
    with tarfile.open(tmp_path / "home" / "car" / "paragraphCorpus.v2.0.tar.xz", "w:xz") as tar:
        tar.add(path, "paragraphCorpus/dedup.articles-paragraphs.cbor")
    code = "from itertools import islice; from cort.sources.irds import iter_documents\n"
    # After the last one, it would miss 29 million.
    code += "for one in islice(iter_documents('car/v2.0'), 6): print(one.doc_id, one.text, sep='\\t')"
    known = os.pathsep.join([str(ROOT), *map(str, {Path(one.__path__[0]).parent for one in (tools, cbor)})])
    done = run_with(tmp_path / "home", code, PYTHONPATH=known)
    expected = [f"{paragraph_id(number).decode()}\t{text}" for number, text in enumerate(TEXTS)]
    assert done.stdout.splitlines() == expected, done.stderr


def test_topics_are_those_of_the_judgements_as_the_paper_writes_them(tmp_path):
    path = write_qrels(tmp_path)
    assert [(row, topic.id, topic.text) for row, topic in iter_queries(path)] == [
        (1, "enwiki:Aftertaste", "Aftertaste"),
        (2, "enwiki:Aftertaste/Wine/Length", "Aftertaste Wine Length"),
        (4, "enwiki:Green%20sea%20turtle/Diet", "Green sea turtle Diet"),
        (6, "enwiki:Hebrew%20%27/History", "Hebrew %27 History"),
    ]
