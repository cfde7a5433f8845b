"""Why a passage ranks where it does: parts that add up to the score, for every kind of system and model."""

import pytest

from cort.online import why
from cort.runtime.errors import InputError
from cort.systems.lexical import Bm25
from cort.systems.vectors import Dense
from tests.support.online import SYSTEMS, Parts, results_with

# Systems of several parts.


@pytest.fixture
def explain(tmp_path, monkeypatch):
    """Explain results of systems with slow parts, whose own reasons are left out."""
    for kind in (Bm25, Dense):
        monkeypatch.setattr(kind, "explain", lambda system, case: case.reason("a part"))
    searchers = []

    def build(**systems):
        searchers.append(Parts().searcher(results_with(tmp_path, SYSTEMS | systems), list(systems)))
        return searchers[-1], lambda name, doc_id: why.explain(searchers[-1], name, "q", doc_id)

    yield build
    for searcher in searchers:
        searcher.close()


def check_total(searcher, name, reasons_of, depth=10):
    """The last column adds up to the score of every result."""
    for result in searcher.search(name, "q", depth).results:
        reason = reasons_of(name, result.doc_id)
        assert (reason.rank, reason.score) == (result.rank, pytest.approx(result.score))
        assert sum(row[-1] for row in reason.rows) == pytest.approx(result.score, abs=1e-5)
        assert reason.total


@pytest.mark.parametrize("more", [{"method": "rrf", "k": 7}, {"method": "linear", "weights": [0.6, 0.4]}])
def test_parts_add_up_to_the_score_of_a_fusion(explain, more):
    searcher, reasons_of = explain(merged={"fuse": {"systems": ["dense", "bm25"], **more}})
    reason = reasons_of("merged", "e2")
    assert reason.rows[0][:3] == ["dense", 3, -2.0]
    assert reason.rows[1][:3] == ["bm25", None, None]
    assert [(part.system, part.rank) for part in reason.parts] == [("dense", 3), ("bm25", None)]
    check_total(searcher, "merged", reasons_of)


def test_interleaving_shows_the_ranks_in_both_parts(explain):
    _, reasons_of = explain(both=SYSTEMS["both"])
    reason = reasons_of("both", "b1")
    assert (reason.rank, reason.score, reason.total) == (4, 0.25, False)
    assert reason.rows == [["dense", None, None], ["bm25", 2, -1.0]]
    assert reasons_of("both", "nowhere").rank is None
    with pytest.raises(InputError, match="system: found 'bm26'"):
        reasons_of("bm26", "b0")


RERANKED = {"rerank": "dense", "reranker": "cross", "depth": 3}


@pytest.mark.parametrize("weight", [0.25, 0.75])
def test_a_re_ranker_and_its_candidates_add_up_to_the_score(explain, weight):
    searcher, reasons_of = explain(mixed=RERANKED | {"weight": weight}, alone=RERANKED)
    reason = reasons_of("mixed", "e0")
    # Among the candidates it is first, for the re-ranker, which reverses the order, last.
    assert reason.rows == [["dense", 1, 0.0, 1.0, 1 - weight, 1 - weight], ["cross", 3, 0.0, 0.0, weight, 0.0]]
    assert [part.system for part in reason.parts] == ["cross", "dense"]
    check_total(searcher, "mixed", reasons_of, depth=3)
    # Lower candidates are not scored.
    reason = reasons_of("mixed", "e4")
    assert (reason.rank, reason.rows, reason.total) == (5, [], False)
    # A re-ranker alone gives its score.
    reason = reasons_of("alone", "e2")
    assert (reason.rank, reason.score, reason.total) == (1, 2.0, False)
    assert reason.rows == [["dense", 3, -2.0], ["cross", 1, 2.0]]
