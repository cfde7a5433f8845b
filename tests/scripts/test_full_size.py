"""The made-up files: MS MARCO's counts and lengths, known ids, and the same bytes each time."""

from fractions import Fraction

import numpy as np

from cort.formats.judgements import iter_qrels
from cort.formats.passages import iter_passages
from cort.formats.topics import iter_queries
from scripts import full_size


def test_files_have_the_proportions_of_ms_marco_and_the_same_bytes_each_time(tmp_path, monkeypatch):
    # So that there are several blocks.
    monkeypatch.setattr(full_size, "BLOCK", 3_000)
    scale = Fraction(1, 1024)
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        (tmp_path / name).mkdir()
        full_size.generate(tmp_path / name, scale, seed)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "same" / path.name).read_bytes()
        assert path.read_bytes() != (tmp_path / "other" / path.name).read_bytes()
    passages = {passage.id: passage.text.split() for _, passage in iter_passages(tmp_path / "one" / "collection.tsv")}
    assert len(passages) == round(full_size.PASSAGES * scale)
    assert 54 < np.mean([len(words) for words in passages.values()]) < 58
    known = set()
    for name, counts in full_size.SPLITS.items():
        queries = {query.id: query.text.split() for _, query in iter_queries(tmp_path / "one" / f"queries.{name}.tsv")}
        qrels = [qrel for _, qrel in iter_qrels(tmp_path / "one" / f"qrels.{name}.tsv")]
        assert [len(queries), len(qrels)] == [max(round(count * scale), full_size.LEAST) for count in counts]
        assert all(set(queries[qrel.query_id]) <= set(passages[qrel.doc_id]) for qrel in qrels)
        assert 2 <= min(map(len, queries.values())) <= max(map(len, queries.values())) <= full_size.LONGEST_QUERY
        assert not known & queries.keys()
        known |= queries.keys()
