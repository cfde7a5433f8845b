import random

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

from cort.formats import runs
from cort.formats.ids import positions
from cort.formats.records import Ranking
from cort.formats.runs import Run, read_run, strictly_decreasing, top, write_run, write_runs
from cort.runtime.errors import InputError
from tests.support.common import write_file


def contents(run):
    return {ranking.query_id: list(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)) for ranking in run}


TEXT = "2 Q0 b 2 0.5 x\n1 Q0 c 9 -1e-3 x\n2 Q0 a 3 0.5 x\n2 Q0 c 1 7 x\n"
# Queries in order of first mention; results by (-score, doc_id), whatever the order and the ranks in the file.
EXPECTED = {"2": [("c", 7.0), ("a", 0.5), ("b", 0.5)], "1": [("c", -0.001)]}


@pytest.mark.parametrize("text", [TEXT, TEXT.replace(" ", "\t"), TEXT.replace(" ", "  "), TEXT.rstrip("\n")])
def test_reading_plain_gzipped_and_any_white_space(tmp_path, text):
    assert contents(read_run(write_file(tmp_path / "run.trec.gz", text))) == EXPECTED
    assert contents(read_run(write_file(tmp_path / "run.trec", text))) == EXPECTED


@pytest.mark.parametrize(("text", "expected"), [(TEXT, {"2": ["c", "a", "b"], "1": ["c"]}), ("", {})])
def test_a_run_is_a_sequence_of_rankings_and_gives_them_by_query(tmp_path, text, expected):
    run = read_run(write_file(tmp_path / "run.trec.gz", text))
    assert (run.query_ids, len(run), len(list(run))) == ([*expected], len(expected), len(expected))
    assert {query: run.by_query()[query] for query in (*expected, "absent")} == expected | {"absent": []}


@pytest.mark.parametrize("form", [lambda t: t.replace("\n", "\r\n"), lambda t: "\ufeff" + t.replace("\n", "\r\n")])
def test_crlf_and_a_byte_order_mark_do_not_slow_reading_down(tmp_path, form, monkeypatch):
    monkeypatch.setattr(runs, "_parse", lambda line: pytest.fail("read line by line"))
    assert contents(read_run(write_file(tmp_path / "x", form(TEXT)))) == EXPECTED


def ranked(*queries):
    """Write the lines of a run; each query is a text of its scores in the order of the ranks."""
    rows = (
        (query, rank, score) for query, scores in enumerate(queries) for rank, score in enumerate(scores.split(), 1)
    )
    return "".join(f"{query} Q0 d{rank} {rank} {score} x\n" for query, rank, score in rows)


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (ranked("3 2 2 1", "2 2 1"), []),
        (ranked("3 2 2 1").replace(" 2 2 x", " - 2 x"), []),
        ("0 Q0 a inf 1 x\n0 Q0 b inf 2 x\n0 Q0 c nan 3 x\n", []),
        (ranked("3 1 2", "2 1", "5"), ["scores contradict ranks in 1 of 3 queries; ranks are ignored"]),
        (ranked("1 1 1", "0 0", "2 1", "5"), ["all scores are equal in 2 of 4 queries; ordered by doc_id"]),
        (ranked("1 2", "2 1", "0 0"), ["scores contradict ranks in 1 of 3 queries", "equal in 1 of 3 queries"]),
    ],
)
def test_queries_whose_scores_contradict_their_ranks_are_counted(tmp_path, caplog, text, warnings):
    for lines in (text, "".join(sorted(text.splitlines(True), reverse=True))):
        caplog.clear()
        run = read_run(write_file(tmp_path / "x", lines))
        assert len(run) == len({line.split()[0] for line in text.splitlines()})
        for message, part in zip(caplog.messages, warnings, strict=True):
            assert message.startswith(f"{tmp_path}/x: ")
            assert part in message
        assert all((np.diff(ranking.scores) <= 0).all() for ranking in run)


def random_lines(seed, id_length):
    """Make the lines of a run in random order, with few distinct scores and therefore many ties."""
    generator = random.Random(seed)  # noqa: S311
    lines = []
    for query in range(40):
        docs = {"".join(generator.choices("0123456789", k=generator.randint(1, id_length))) for _ in range(60)}
        lines += [(f"q{query}", doc_id, generator.choice(["2", "1.5", "-1", "1e-3"])) for doc_id in sorted(docs)]
    generator.shuffle(lines)
    return lines


@pytest.mark.parametrize("arranged", ["mixed", "by query", "by query and score"])
@pytest.mark.parametrize(("seed", "id_length"), [(1, 8), (2, 25)])
def test_the_order_of_lines_does_not_matter(tmp_path, monkeypatch, arranged, seed, id_length):
    lines = random_lines(seed, id_length)
    if arranged != "mixed":
        lines.sort(key=lambda line: (line[0], -float(line[2]) * (arranged == "by query and score")))
    text = "".join(f"{query} Q0 {doc} 1 {score} x\n" for query, doc, score in lines)
    expected: dict[str, list[tuple[str, float]]] = {query: [] for query, _, _ in lines}
    for query, doc, score in lines:
        expected[query].append((doc, float(score)))
    for results in expected.values():
        results.sort(key=lambda result: (-result[1], result[0].encode()))
    for name, size in (("ordering.ROWS_PER_SORT", 7), ("lines.ARROW_BLOCK", 1000)):
        monkeypatch.setattr(f"cort.formats.{name}", size)
        run = read_run(write_file(tmp_path / "x", text))
        assert run.query_ids == list(expected)
        assert contents(run) == expected


def test_ids_of_more_than_two_gigabytes_are_joined_with_longer_offsets(tmp_path, monkeypatch):
    text = "".join(f"{query} Q0 {doc} 1 {score} x\n" for query, doc, score in random_lines(3, 12))
    expected = read_run(write_file(tmp_path / "x", text))
    monkeypatch.setattr("cort.formats.lines.ARROW_BLOCK", 1000)
    monkeypatch.setattr("cort.formats.ids.LARGEST_OFFSET", 1000)
    run = read_run(tmp_path / "x")
    assert run.doc_ids.type == "large_string"
    assert contents(run) == contents(expected)
    assert positions(run.doc_ids, expected.doc_ids).tolist() == positions(expected.doc_ids, expected.doc_ids).tolist()
    for name, each in (("large", run), ("small", expected)):
        write_runs(tmp_path / name, [top(each, 7)], "t")
    assert (tmp_path / "large").read_bytes() == (tmp_path / "small").read_bytes()
    with pytest.raises(InputError, match="again in the ranking of query"):
        read_run(write_file(tmp_path / "y", text + text.partition("\n")[0] + "\n"))


def test_concatenated_rankings_are_lowered_independently():
    scores = [[2.0, 2.0, 1.0], [5.0], [-1.0, -1.0], [3e38, 3e38], [-3e38, -3e38], [3e38]]
    number = np.repeat(np.arange(len(scores)), [len(part) for part in scores])
    apart = [strictly_decreasing(np.array(part)) for part in scores]
    assert np.array_equal(strictly_decreasing(np.concatenate(scores), number), np.concatenate(apart))


@pytest.mark.parametrize(
    "scores",
    [
        *([1.0] * 1000, [-0.0, 0.0, -0.0], [1e-45, 0.0, 0.0, -1e-45], [], [16777217.0, 16777216.0]),
        *([-1.0, -1.0, -1.0 - 1e-9], [1.0, 1.0, 1.0 - 2**-24, 0.5]),
    ],
)
def test_strictly_decreasing_scores(scores):
    lowered = strictly_decreasing(np.array(scores))
    assert lowered.dtype == np.float32
    assert (np.diff(lowered.astype(np.float64)) < 0).all()
    assert np.allclose(lowered, np.array(scores, dtype=np.float32), rtol=2e-4, atol=1e-40)
    assert (lowered <= np.array(scores, dtype=np.float32)).all()


def test_strictly_decreasing_takes_the_fewest_steps():
    step = np.spacing(np.float32(1)) / 2
    for scores, lowered in (([1.0] * 3, [1.0, 1.0 - step, 1.0 - 2 * step]), ([2.0, 1.0, -3.0], [2.0, 1.0, -3.0])):
        assert strictly_decreasing(np.array(scores, np.float32)).tolist() == lowered


def random_rankings(seed):
    generator = np.random.default_rng(seed)
    for query in range(20):
        doc_ids = [f"é{number}" for number in generator.permutation(50)[: generator.integers(1, 50)]]
        # Few distinct scores of very different sizes: ties everywhere, also of 0.
        scores = generator.integers(-2, 3, len(doc_ids)) * 10.0 ** generator.integers(-3, 3)
        by = sorted(range(len(doc_ids)), key=lambda i: (-scores[i], doc_ids[i]))
        yield Ranking(f"q{query}", [doc_ids[i] for i in by], scores[by])


def test_what_is_written_is_read_in_the_same_order_and_by_trec_eval_too(tmp_path):
    rankings = list(random_rankings(5))
    assert write_run(tmp_path / "empty", [], "t") == (tmp_path / "empty").stat().st_size == 0
    lines = write_run(tmp_path / "run.trec", rankings, "tag")
    assert lines == sum(len(ranking.doc_ids) for ranking in rankings)
    again = read_run(tmp_path / "run.trec")
    assert [(r.query_id, r.doc_ids) for r in again] == [(r.query_id, r.doc_ids) for r in rankings]
    scores = {r.query_id: dict(zip(r.doc_ids, r.scores.tolist(), strict=True)) for r in again}
    for rank in (1, 2, 10):
        qrels = {r.query_id: {r.doc_ids[rank - 1]: 1} for r in rankings if len(r.doc_ids) >= rank}
        values = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(scores)
        assert {value["recip_rank"] for value in values.values()} == {1 / rank}


def test_blocks_of_lines_change_no_byte(tmp_path, monkeypatch):
    write_run(tmp_path / "whole", random_rankings(6), "t")
    monkeypatch.setattr(runs, "ROWS_PER_BLOCK", 30)
    write_run(tmp_path / "parts", random_rankings(6), "t")
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()


def test_each_result_knows_its_query_and_rank():
    run = Run(["a", "none", "b"], np.array([0, 2, 2, 5]), pa.array(list("vwxyz")), -np.arange(5.0))
    assert run.query_numbers().tolist() == [0, 0, 2, 2, 2]
    assert run.ranks().tolist() == [1, 2, 1, 2, 3]


def test_ids_with_quotes_are_written_and_tags_with_whitespace_are_refused(tmp_path):
    path = tmp_path / "x.trec"
    write_run(path, [Ranking('"q', ['d"', '"'], np.array([2.0, 1.0])), Ranking("empty", [], np.array([]))], "t")
    assert path.read_text() == '"q Q0 d" 1 2 t\n"q Q0 " 2 1 t\n'
    assert read_run(path)[0].doc_ids == ['d"', '"']
    for tag in ("", "a b", "a\u200b"):
        with pytest.raises(InputError, match="--tag: found "):
            write_run(tmp_path / "y.trec", [Ranking("q", ["d", "e"], np.array([2.0, 1.0]))], tag)
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_at_the_last_lines_leaves_no_run(tmp_path, monkeypatch):
    def fail(handle, columns):
        raise OSError("full")

    monkeypatch.setattr(runs, "_write_lines", fail)
    with pytest.raises(OSError, match="full"):
        write_run(tmp_path / "x.trec", random_rankings(6), "t")
    assert list(tmp_path.iterdir()) == []
