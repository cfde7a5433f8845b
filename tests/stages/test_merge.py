from functools import partial

import numpy as np
import pytest

from cort import retrieve
from cort.formats import tables
from cort.formats.records import Ranking
from cort.formats.runs import iter_rankings, write_rankings
from cort.formats.shards import all_ids, open_shards, part_of
from cort.system.errors import InputError
from tests.support.common import write_rows
from tests.support.vectors import names, random_unit, shards

ROWS = [Ranking("q", ["a", "b"], np.array([2, 1], np.float32)), Ranking("r", ["c"], np.array([3], np.float32))]


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def run(*words):
    assert retrieve.main(["exact", *map(str, words), "--tag", "t", "--threads", "1", "--device", "cpu"]) == 0


@pytest.mark.parametrize(("parts", "depth"), [(1, 10), (4, 10), (4, 100), (7, 500)])
def test_the_run_of_any_parts_is_that_of_the_whole(tmp_path, generator, parts, depth):
    # Whole numbers tie within parts and across them.
    vectors = generator.integers(-2, 3, (300, 6)).astype(np.float32)
    ids = [f"{number}" for number in generator.permutation(300)]
    passages = ["--passages", *shards(tmp_path, "p", ids, vectors, bounds=(10, 120, 299))]
    queries = ["--queries", *shards(tmp_path, "q", names("q", 9), generator.integers(-2, 3, (9, 6)).astype(np.float32))]
    run(*queries, *passages, "--depth", depth, "--output", tmp_path / "whole.trec")
    found = [tmp_path / f"{number}.parquet" for number in range(1, parts + 1)]
    for number, path in enumerate(found, start=1):
        run(*queries, *passages, "--depth", depth, "--part", f"{number}-of-{parts}", "--output", path)
    options = ["--depth", str(depth), "--tag", "t", "--output", str(tmp_path / "merged.trec")]
    assert retrieve.main(["merge", "--parts", *map(str, found), *options]) == 0
    assert (tmp_path / "merged.trec").read_bytes() == (tmp_path / "whole.trec").read_bytes()


@pytest.mark.parametrize("parts", [1, 3, 50, 97])
def test_the_parts_are_the_whole(tmp_path, generator, parts):
    opened = open_shards(shards(tmp_path, "p", names("d", 97), random_unit(generator, 97, 4), bounds=(1, 50), batch=7))
    found = [all_ids(part_of(opened, f"{number}-of-{parts}")).to_pylist() for number in range(1, parts + 1)]
    assert [one for some in found for one in some] == names("d", 97)
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("part", ["1-of-98", "0-of-2", "3-of-2", "2", "1-of-2\n"])
def test_an_invalid_part_is_refused(tmp_path, generator, part):
    opened = open_shards(shards(tmp_path, "p", names("d", 97), random_unit(generator, 97, 4)))
    with pytest.raises(InputError, match=r"--part: found "):
        part_of(opened, part)


def test_rankings_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr("cort.formats.runs.iter_batches", partial(tables.iter_batches, rows=1))
    assert write_rankings(tmp_path / "a.parquet", ROWS) == 3
    found = list(iter_rankings(tmp_path / "a.parquet"))
    rows = [(query_id, rows["doc_id"].to_pylist(), rows["score"].to_pylist()) for query_id, rows in found]
    assert rows == [("q", ["a", "b"], [2, 1]), ("r", ["c"], [3])]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("q", "x", float("nan"))], "b.parquet: found a NaN or infinite score"),
        ([("q", "x", 1)], "b.parquet: found no more queries, expected query r, as in the other parts"),
        ([("r", "x", 1), ("q", "x", 1)], "b.parquet: found query r, expected query q"),
        ([("q", "b", 1), ("r", "x", 1)], "found a passage twice for query q"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, capsys, rows, expected):
    write_rankings(tmp_path / "a.parquet", ROWS)
    parts = [str(tmp_path / "a.parquet"), write_rows(tmp_path / "b.parquet", tables.SCORES, rows)]
    assert retrieve.main(["merge", "--parts", *parts, "--tag", "t", "--output", str(tmp_path / "r.trec")]) == 1
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "r.trec").exists()
