"""The made-up collection: MS MARCO's counts and lengths at any size, the same from the same seed."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from cort.evaluation.measures import evaluate_run, means
from cort.formats.raw import iter_passages, iter_qrels, iter_queries
from cort.formats.records import Ranking
from scripts.rehearsal.synthetic import PASSAGES, SPLITS, STOP_WORDS, generate, vocabulary

SIZE = Fraction(1, 1024)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("synthetic")
    generate(folder, SIZE, 42)
    return folder


def rows(reader, path):
    return [record for _, record in reader(path)]


def test_full_counts_are_ms_marcos():
    train, dev, small = SPLITS["train"], SPLITS["dev"], SPLITS["dev.small"]
    assert PASSAGES == 8_841_823
    assert (train.queries, sum(train.judged), judgements(train)) == (808_731, 502_939, 532_761)
    assert (small.queries, sum(small.judged), judgements(small)) == (6_980, 6_980, 7_437)
    assert dev.queries + small.queries == 101_093
    assert sum(dev.judged) + sum(small.judged) == 55_578
    assert judgements(dev) + judgements(small) == 59_273


def judgements(split):
    return sum((number + 1) * count for number, count in enumerate(split.judged))


def test_files_have_the_proportions_asked_for(folder):
    passages = rows(iter_passages, folder / "collection.tsv")
    assert len(passages) == round(PASSAGES * SIZE)
    assert [passage.id for passage in passages] == [str(number) for number in range(len(passages))]
    lengths = [len(passage.text.split()) for passage in passages]
    assert 54 < np.mean(lengths) < 58
    for name, split in SPLITS.items():
        whole = [split, SPLITS["dev.small"]] if name == "dev" else [split]
        queries = rows(iter_queries, folder / f"queries.{name}.tsv")
        qrels = rows(iter_qrels, folder / f"qrels.{name}.tsv")
        assert len(queries) == pytest.approx(float(sum(part.queries for part in whole) * SIZE), abs=3)
        assert len({qrel.query_id for qrel in qrels}) == pytest.approx(
            float(sum(sum(part.judged) for part in whole) * SIZE), abs=3
        )
        assert {qrel.query_id for qrel in qrels} <= {query.id for query in queries}
        assert len({(qrel.query_id, qrel.doc_id) for qrel in qrels}) == len(qrels)
        assert {int(qrel.doc_id) for qrel in qrels} <= set(range(len(passages)))
        assert all(len(query.text.split()) >= 2 for query in queries)


def test_dev_small_is_a_part_of_dev_and_no_query_is_in_train_too(folder):
    ids = {name: {query.id for query in rows(iter_queries, folder / f"queries.{name}.tsv")} for name in SPLITS}
    assert ids["dev.small"] < ids["dev"]
    assert not ids["dev"] & ids["train"]


def test_queries_ask_for_words_of_their_passage(folder):
    texts = {passage.id: set(passage.text.split()) for passage in rows(iter_passages, folder / "collection.tsv")}
    first = {}
    for qrel in rows(iter_qrels, folder / "qrels.train.tsv"):
        first.setdefault(qrel.query_id, qrel.doc_id)
    for query in rows(iter_queries, folder / "queries.train.tsv"):
        if query.id in first:
            assert set(query.text.split()) <= texts[first[query.id]]


def test_words_are_distinct_and_the_commonest_are_stop_words(folder):
    words = vocabulary().to_pylist()
    assert len(set(words)) == len(words)
    passages = rows(iter_passages, folder / "collection.tsv")
    counts = Counter(word for passage in passages for word in passage.text.split())
    assert [word for word, _ in counts.most_common(5)] == list(STOP_WORDS[:5])


def test_the_seed_decides_the_bytes(folder, tmp_path):
    for seed, same in ((42, True), (43, False)):
        generate(tmp_path / str(seed), SIZE, seed)
        for path in folder.iterdir():
            assert (path.read_bytes() == (tmp_path / str(seed) / path.name).read_bytes()) == same


def test_random_runs_are_runs(tmp_path):
    from cort.formats.runs import read_run
    from scripts.rehearsal.drawn import write_random_run

    write_random_run(tmp_path / "r.trec", ["a", "b"], passages=50, depth=7, seed=1)
    run = read_run(tmp_path / "r.trec")
    rankings = list(run)
    assert [len(set(ranking.doc_ids)) for ranking in rankings] == [7, 7]
    assert all(0 <= int(doc_id) < 50 for ranking in rankings for doc_id in ranking.doc_ids)
    assert isinstance(rankings[0], Ranking)
    values = evaluate_run(run, {"a": {rankings[0].doc_ids[1]: 1}}, ["RR"])
    assert means(values, ["RR"]) == {"RR": 0.5}
