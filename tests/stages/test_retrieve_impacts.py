"""Lucene's ranking by impacts against the exact integer product of sparse matrices."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.sparse import csr_array

from cort.formats import tables
from cort.formats.runs import read_run, strictly_decreasing
from cort.retrieval.impacts import as_text
from cort.retrieval.lucene import BY_IMPACTS, LuceneProcess

VOCABULARY, DEPTH = 400, 30


def draw(generator, path, prefix, rows, most, highest):
    """Write impacts of random tokens; some texts have none."""
    tokens = [np.sort(generator.choice(VOCABULARY, generator.integers(0, most), replace=False)) for _ in range(rows)]
    impacts = [generator.integers(1, highest, len(ids)) for ids in tokens]
    # In an order of ids that is not that of the rows.
    ids = [f"{prefix}{number}" for number in generator.permutation(rows)]
    pq.write_table(pa.table([ids, tokens, impacts], schema=tables.IMPACTS), path)
    return str(path)


def matrix(*paths):
    """Ids, and impacts of shape (texts, vocabulary)."""
    table = pa.concat_tables([tables.read_table(path, tables.IMPACTS) for path in paths]).combine_chunks()
    column = table["tokens"].combine_chunks()
    impacts = table["impacts"].combine_chunks().flatten().to_numpy().astype(np.int64)
    offsets = np.append(0, np.cumsum(column.value_lengths().to_numpy()))
    shape = len(table), VOCABULARY
    return table["id"].to_pylist(), csr_array((impacts, column.flatten().to_numpy(), offsets), shape=shape)


def oracle(queries, passages):
    """The ranking of each query: ids and integer scores by (-score, doc_id)."""
    query_ids, weights = matrix(queries)
    doc_ids, impacts = matrix(*passages)
    for query_id, scores in zip(query_ids, (weights @ impacts.T).toarray(), strict=True):
        found = np.flatnonzero(scores)
        by = sorted(found.tolist(), key=lambda row: (-scores[row], doc_ids[row]))[:DEPTH]
        yield query_id, [doc_ids[row] for row in by], scores[by]


# Small impacts have many ties; the others are as great as those of SPLADE, and their scores have six digits.
@pytest.mark.parametrize("highest", [3, 400])
def test_lucene_ranks_all_queries_as_the_integer_product_does(tmp_path, highest, stage, refused):
    generator = np.random.default_rng(3)
    passages = [draw(generator, tmp_path / f"{part}.parquet", f"{part}-", 300, 60, highest) for part in "ab"]
    queries = draw(generator, tmp_path / "queries.parquet", "q", 80, 20, highest)
    built = stage("index impacts", passages=passages, output=tmp_path / "index")
    options = {"index": built, "queries": queries, "depth": DEPTH, "tag": "t"}
    rankings = list(read_run(stage("retrieve impacts", **options, output=tmp_path / "run.trec")))
    expected = [(query_id, *found) for query_id, *found in oracle(queries, passages) if found[0]]
    assert [one.query_id for one in rankings] == [query_id for query_id, _, _ in expected]
    for ranking, (_, doc_ids, scores) in zip(rankings, expected, strict=True):
        assert ranking.doc_ids == doc_ids
        # A run's scores decrease strictly.
        assert np.array_equal(ranking.scores.astype(np.float32), strictly_decreasing(scores.astype(float)))
    check_online(built, queries, expected)
    # BM25 would take impacts for term frequencies.
    options["queries"] = tmp_path / "texts.parquet"
    tables.write_table(options["queries"], pa.table([["q"], ["text"]], schema=tables.QUERIES))
    assert "found the form 'impacts'" in refused("retrieve bm25", **options, output=tmp_path / "other.trec")


def check_online(built, queries, expected):
    """A searcher gets the same from an open index, and what each token adds."""
    rows = {row["id"]: row for row in tables.read_table(queries, tables.IMPACTS).to_pylist()}
    with LuceneProcess(built, 1, 200) as lucene:
        texts = [as_text(rows[query_id]["tokens"], rows[query_id]["impacts"]) for query_id, _, _ in expected]
        for ranking, (_, doc_ids, scores) in zip(lucene.search(texts, BY_IMPACTS, DEPTH), expected, strict=True):
            assert (ranking.doc_ids, ranking.scores.tolist()) == (doc_ids, scores.tolist())
        first = rows[expected[0][0]]
        impacts = dict(zip(first["tokens"], first["impacts"], strict=True))
        terms = lucene.explain(texts[0], BY_IMPACTS, expected[0][1][0])
        assert sum(impacts[int(term.term)] * term.score for term in terms) == expected[0][2][0]
