import json
import re

import numpy as np
import pytest

from cort.evaluation.curves import Depths
from cort.formats.artifacts import parse_assignments
from cort.reporting.inputs import COLUMNS, Stage, read_curve, read_each, read_measures, read_stages
from cort.reporting.panels import POINTS, WINDOWS, smooth, thin
from cort.reporting.sections import summarize
from cort.runtime.errors import InputError

MEASURES = {"system": "s", "split": "t", "relevance_level": 1, "queries": 3, "mean": {"RR@10": 0.5, "AP": None}}
MEASURES |= {"without_results": 0, "without_relevant": 0, "judged": None}
DEPTHS = {"system": "s", "split": "t", "relevance_level": 1, "queries": 3, "depths": [1, 2]}
DEPTHS |= {"measures": {"RR@10": [0.1, 0.2]}, "saturation": {"RR@10": 2, "AP": None}}


@pytest.fixture
def file(tmp_path):
    def write(content, name="file.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mean": {"RR@10": 7}}, "7.0 at mean.RR@10"),
        ({"relevance_level": 0}, "0 at relevance_level"),
        ({"without_results": 10**6}, "1000000 at without_results"),
    ],
)
def test_numbers_that_no_measure_gives_are_refused(file, changes, words) -> None:
    with pytest.raises(InputError, match=words):
        read_measures([file({"without_results": 0, "without_relevant": 0} | MEASURES | changes)])


def test_the_same_system_and_split_twice_is_refused(file) -> None:
    paths = [file(MEASURES, "a.json"), file(MEASURES, "b.json")]
    with pytest.raises(InputError, match=r"b\.json: found system 's' on split 't' as in .*a\.json"):
        read_measures(paths)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"depths": [2, 1]}, "[2, 1] at depths"),
        ({"depths": []}, "[] at depths"),
        ({"measures": {"RR@10": [0.1]}}, "1 values at measures.RR@10"),
        ({"saturation": {"RR@10": 3}}, "3 at saturation.RR@10"),
    ],
)
def test_depths_that_do_not_fit_are_refused(file, change, complaint) -> None:
    with pytest.raises(InputError, match=re.escape(f"found {complaint}, expected")):
        read_each([file(DEPTHS | change)], Depths)


def test_assignments_split_at_the_first_equals_sign() -> None:
    assert parse_assignments("--x", ["a=b=c", "b=e = 128"]) == {"a": "b=c", "b": "e = 128"}
    for wrong in ("a", "=b", "a="):
        with pytest.raises(InputError, match=r"--x: found .* expected NAME=VALUE"):
            parse_assignments("--x", [wrong])
    with pytest.raises(InputError, match="the name 'a' twice"):
        parse_assignments("--x", ["a=1", "a=2"])


HEADER = ",".join(COLUMNS)
# No whole numbers.
STEPS = ("", "inf", "1.5", "1_0", "-1")


def test_curve_is_read_and_summed_up(file) -> None:
    text = f"{HEADER}\n10,0.5,0.4,,1e-5,100\n20,1.0,nan,0.3,2e-5,\n30,1.5,0.2,0.25,1e-5,300\n"
    curve = read_curve("c", file(text, "c.csv"))
    assert [known.tolist() for known in curve.known("loss")] == [[10, 30], [0.4, 0.2]]
    summary = summarize(curve)
    assert (summary.steps, summary.epochs, summary.last_loss) == (30, 1.5, 0.2)
    assert (summary.best_validation_loss, summary.best_measure, summary.best_step) == (0.25, None, 30)
    assert summary.examples_per_second == (100 + 300) / 2


def test_the_best_step_is_that_of_the_measure_and_none_of_a_curve_without_numbers(file) -> None:
    text = f"{HEADER},validation_measure\n10,1,.4,.3,1,1,.25\n20,2,.4,.2,1,1,.5\n30,3,.4,.1,1,1,.5\n40,4,.4,,1,1,\n"
    summary = summarize(read_curve("c", file(text, "c.csv")))
    assert (summary.best_validation_loss, summary.best_measure, summary.best_step) == (0.1, 0.5, 20)
    summary = summarize(read_curve("c", file(f"{HEADER}\n10,,,,,\n", "c.csv")))
    assert (summary.steps, summary.last_loss, summary.best_step, summary.examples_per_second) == (10, None, None, None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "1: found the header ''"),
        ("step,loss\n", "1: found the header 'step,loss'"),
        (f"step,{HEADER}\n1,2,0.1,0.5,,,\n", "1: found the header"),
        ("a" * 200_000, "1: found the header"),
        (f"{HEADER}\n1,2\n", "2: found 2 cells, expected 6"),
        (f"{HEADER}\n1,0.1,0.5,,,\n2,0.1,x,,,\n", "3: found 'x' in column loss"),
        *((f"{HEADER}\n{one},0.1,0.5,,,\n", f"2: found '{one}' in column step") for one in STEPS),
        (f"{HEADER}\n2,0.1,0.5,,,\n2,0.1,0.5,,,\n", "3: found '2' in column step"),
    ],
)
def test_a_damaged_curve_is_refused(file, text, complaint) -> None:
    path = file(text, "c.csv")
    with pytest.raises(InputError, match=re.escape(f"{path}: row {complaint}")):
        read_curve("c", path)


def test_a_curve_without_rows_is_refused(file) -> None:
    with pytest.raises(InputError, match=r"c\.csv: found no rows"):
        read_curve("c", file(f"{HEADER}\n", "c.csv"))


def test_smoothing_is_a_centred_mean() -> None:
    values = np.random.default_rng(0).normal(size=5 * WINDOWS)
    half = len(values) // WINDOWS // 2
    expected = [values[max(0, i - half) : i + half + 1].mean() for i in range(len(values))]
    np.testing.assert_allclose(smooth(values), expected)
    np.testing.assert_allclose(smooth(values[:3]), values[:3])


def test_thinning_keeps_the_ends() -> None:
    steps = np.arange(10 * POINTS, dtype=np.float64)
    x, y = thin(steps, -steps)
    assert len(x) == POINTS
    assert (x[0], x[-1]) == (0, 10 * POINTS - 1)
    assert np.array_equal(y, -x)


BENCHMARK = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"


def benchmark(path, *rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(BENCHMARK + "".join(f"{s}\t0:00:01\t{rss}\t-\t-\t-\t-\t-\t-\t-\n" for s, rss in rows))


def test_benchmarks_are_summed_up_per_rule(tmp_path) -> None:
    benchmark(tmp_path / "encode/a/1-of-2.tsv", (1.5, 100))
    benchmark(tmp_path / "encode/a/2-of-2.tsv", (2.5, 300))
    benchmark(tmp_path / "split/x.tsv", ("0.25", "-"), ("0.5", "NA"))
    benchmark(tmp_path / "tokenize.tsv", (4.0, 50), ("-", "-"))
    expected = [Stage("encode", 2, 1.5 + 2.5, 2.5, 300), Stage("tokenize", 1, 4.0, 4.0, 50)]
    assert read_stages(tmp_path) == [*expected, Stage("split", 2, 0.25 + 0.5, 0.5, None)]
    assert read_stages(tmp_path / "none") == []


def test_a_damaged_benchmark_is_left_out_and_named(tmp_path, caplog) -> None:
    benchmark(tmp_path / "a/good.tsv", (1.5, 100))
    for wrong in ("x", "inf", "-5", "1e999", "1_0"):
        benchmark(tmp_path / "a/b.tsv", (wrong, 1))
        assert read_stages(tmp_path) == [Stage("a", 1, 1.5, 1.5, 100)]
        assert f"b.tsv: row 2: found {wrong!r}, expected a number from 0" in caplog.text
    cells = ("s\tmax_rss\n9\t9\n1\n", "row 3: found 1 cells")
    for damaged, found in (("seconds\n1\n", "row 1: found the header 'seconds'"), cells):
        (tmp_path / "a/b.tsv").write_text(damaged)
        assert [one.jobs for one in read_stages(tmp_path)] == [1]
        assert found in caplog.text
