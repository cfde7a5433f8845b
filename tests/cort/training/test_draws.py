"""Drawing from what is kept of a run, against drawing from all of it."""

import numpy as np
import pyarrow as pa
import pytest

from cort.formats import tables
from cort.formats.pairs import Pairs
from cort.formats.runs import read_run, write_runs
from cort.training.draws import DrawOptions, draw_negatives, kept
from tests.support.common import table_of, write_ranked
from tests.support.training import Pool, pools_of

# Options of each stage.
STAGES = {
    "triples": [{"negatives": 1}, {"negatives": 3}],
    "pairs": [
        {"negatives": 2},
        {"negatives": 4, "random": 3},
        {"negatives": 2, "positives": "all"},
        {"positives": "retrieved"},
    ],
}


@pytest.mark.parametrize(("name", "changes"), [(name, one) for name, many in STAGES.items() for one in many])
@pytest.mark.parametrize("number", range(3))
def test_what_is_kept_gives_the_same_examples_as_the_whole_run(stage, tmp_path, name, changes, number):
    generator = np.random.default_rng(number)
    docs = np.array([f"document-{place}" for place in range(80)])
    runs = []
    for part in range(1 + number % 2):
        rankings = {f"q{q}": list(generator.permutation(docs)[: generator.integers(1, 70)]) for q in range(40)}
        runs.append(write_ranked(tmp_path / f"{part}.trec", rankings))
    judged = [
        (f"q{q}", doc, int(generator.integers(0, 3)))
        for q in range(45)
        for doc in generator.permutation(docs)[: generator.integers(0, 9)]
    ]
    tables.write_table(tmp_path / "qrels.parquet", table_of(tables.QRELS, judged))
    first = int(generator.integers(1, 9))
    ranks = {"first_rank": first, "last_rank": first + int(generator.integers(0, 60)), "epochs": 3}
    named = {
        "qrels": tmp_path / "qrels.parquet",
        "seed": number,
        "minimum_results": 20,
        "relevance_level": 1 + number % 2,
    }
    named |= {**ranks, **changes, "output_counts": tmp_path / "counts.json"}
    count = changes.get("negatives", ranks["last_rank"]) - changes.get("random", 0)
    draws, all_judged = DrawOptions(**ranks, negatives=count), Pairs.of(table_of(tables.QRELS, judged))
    thinned = []
    for path in runs:
        whole = read_run(path)
        less = kept(whole, all_judged, draws, number, changes.get("positives") == "all")
        assert (len(less.doc_ids) == len(whole.doc_ids)) <= (changes.get("positives") == "retrieved")
        write_runs(f"{path}.kept", [less], "t")
        thinned.append(f"{path}.kept")
    made, counts = [], []
    for place, source in enumerate((runs, thinned)):
        made.append(stage(name, run=source, output=tmp_path / f"{place}.parquet", **named).read_bytes())
        counts.append((tmp_path / "counts.json").read_bytes())
    assert made[0] == made[1]
    assert counts[0] == counts[1]


def test_few_results_are_kept(tmp_path):
    rankings = {f"q{q}": [f"d{place}" for place in range(1000)] for q in range(20)}
    run = read_run(write_ranked(tmp_path / "run.trec", rankings))
    judged = Pairs(pa.array([f"q{q}" for q in range(19)]), pa.array([f"d{50 * q}" for q in range(19)]))
    less = kept(run, judged, DrawOptions(epochs=8, first_rank=1, last_rank=1000, negatives=1), seed=1)
    # A positive, a negative in each epoch, and the last rank; this alone of a query that nobody judged.
    assert (np.diff(less.offsets)[:-1] <= 1 + 8 + 1).all()
    assert less[19].doc_ids == ["d999"]
    assert (less.doc_ids.to_pylist() == np.char.add("d", (less.ranks() - 1).astype(str))).all()


def drawn(pools, count, epochs, turns=1):
    """Negatives of each epoch and turn, by their places."""
    chosen = np.tile(np.arange(len(pools)), turns)
    order = np.repeat(np.arange(turns), len(pools))
    found = [draw_negatives(pools, chosen, order, count, 1, epoch) for epoch in range(epochs)]
    return np.array(found).reshape(epochs, turns, len(pools), count)


def test_different_values_are_drawn_and_every_choice_is_as_likely():
    pools = pools_of(*(Pool(f"q{number}", ["p"], list("abcd"), [1, 2, 3, 4]) for number in range(600)))
    values = drawn(pools, 3, 10).reshape(-1, 3) % 4
    choices, counts = np.unique(values, axis=0, return_counts=True)
    assert len(choices) == 24
    # Six standard deviations of a binomial count with probability 1/24.
    assert (abs(counts - 6000 / 24) < 6 * np.sqrt(6000 / 24 * 23 / 24)).all()


def test_turns_share_the_negatives_of_a_pool_and_begin_again_at_its_end():
    pools = pools_of(Pool("q", ["p"], list("abcdefg"), [*range(1, 8)]), Pool("r", ["p"], ["x"], [1]))
    found = drawn(pools, 3, 4, turns=3)
    for epoch in found[:, :, 0]:
        assert {*epoch[:2].ravel(), epoch[2, 0]} == {*range(7)}
        assert all(len({*turn}) == 3 for turn in epoch)
    assert (found[:, :, 1] == [7, -1, -1]).all()
