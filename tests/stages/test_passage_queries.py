"""Which passages a language model is asked about."""

import pyarrow as pa

from cort.formats.tables import PASSAGES, write_table
from cort.passage_queries import Options, draw_passages
from cort.retrieval.documents import hash_of, split_of


def test_each_split_has_the_passages_of_its_documents_with_the_smallest_hashes(tmp_path):
    # More than a batch, so that later ones are compared with what was drawn.
    doc_ids = [f"d{number // 3}#{number % 3}" for number in range(200_000)]
    write_table(tmp_path / "p.parquet", pa.table([doc_ids, ["text"] * len(doc_ids)], schema=PASSAGES))
    splits, samples = ("validation", "test"), (5, 40)
    given = {"model": "m", "cache": "-", "output": "-", "passages": str(tmp_path / "p.parquet")}
    expected = []
    for split, number in zip(splits, samples, strict=True):
        own = (doc_id for doc_id in doc_ids if split_of(doc_id.partition("#")[0], splits, 7) == split)
        expected += sorted(own, key=lambda doc_id: hash_of(7, doc_id))[:number]
    assert draw_passages(Options(**given, splits=splits, samples=samples, seed=7)) == expected
