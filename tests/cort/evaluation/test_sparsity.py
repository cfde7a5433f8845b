import pyarrow as pa
import pytest

from cort.evaluation.sparsity import measure_sparsity
from cort.formats.tables import IMPACTS


def batch(*tokens):
    impacts = [[5] * len(ids) for ids in tokens]
    return pa.record_batch([[str(row) for row in range(len(tokens))], tokens, impacts], schema=IMPACTS)


def test_flops_are_the_terms_that_a_query_and_a_passage_share_on_average():
    queries, passages = [[1, 2], [2]], [[2, 3, 9], [1, 2], []]
    found = measure_sparsity("splade", "test", [batch(*queries)], [batch(*passages[:1]), batch(*passages[1:])])
    assert (found.queries, found.passages) == (2, 3)
    assert (found.query_terms, found.passage_terms) == pytest.approx((3 / 2, 5 / 3))
    shared = [len(set(query) & set(passage)) for query in queries for passage in passages]
    assert found.flops == pytest.approx(sum(shared) / 6)
