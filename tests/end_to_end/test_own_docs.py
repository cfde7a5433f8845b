"""The project's own documentation, as folders of users are: Markdown with tables, code and pictures."""

import json
from pathlib import Path

import pytest

from cort.config import paths
from cort.config.load import load
from cort.formats.judgements import iter_qrels
from cort.formats.runs import read_run
from tests.support.forking import succeed
from tests.support.sandbox import copy_tree
from workflow import verdict


@pytest.mark.slow
def test_the_first_build_of_a_verdict(tmp_path, monkeypatch):
    """Up to BM25 on the queries that are made of the documents."""
    tree = copy_tree(tmp_path / "tree")
    (tree / verdict.STATIC).mkdir(parents=True)
    monkeypatch.chdir(tree)

    def build(config, *targets):
        succeed(tree, "workflow.build", "--configfile", config, "--", *targets)

    monkeypatch.setattr(verdict, "build", build)
    request = verdict.Request("docs", None, None, None, "docs")
    verdict.check(request)
    verdict.prepare(request)
    files = (paths.INSPECTION, paths.IMPORT_COUNTS, paths.IMPORTED_QRELS, paths.DOCUMENT_RUN)
    inspection, counts, qrels, run = (load(request.synthetic).at(file, split="test", system="bm25") for file in files)
    verdict.build(request.synthetic, inspection, run)
    documents = [*Path("docs").rglob("*.md")]
    looked, found = (json.loads(Path(file).read_text("utf-8")) for file in (inspection, counts))
    assert (found["documents"], found["documents without text"]) == (len(documents), 0)
    assert f"{found['passages']} passages" in [one["text"] for one in looked]
    relevant = {qrel.query_id: qrel.doc_id for _, qrel in iter_qrels(qrels)}
    assert len(relevant) >= verdict.FEWEST
    # Queries are sentences or headings of the document: nearly all are found among the first, and chance is a tenth.
    first = {ranking.query_id: [*ranking.doc_ids][: len(documents) // 10] for ranking in read_run(run)}
    assert sum(doc_id in first.get(query_id, ()) for query_id, doc_id in relevant.items()) > 0.5 * len(relevant)
