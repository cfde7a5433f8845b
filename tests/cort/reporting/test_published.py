from types import SimpleNamespace

import numpy as np
import pytest

from cort.evaluation.curves import Depths
from cort.evaluation.measures import Judged, Measures
from cort.reporting.published import COLUMNS, coverage, join, read_published, tables, values
from cort.reporting.results import LatencyRow
from cort.runtime.errors import InputError
from tests.support.online import results_with

#: row, value, system, measure, candidates -> our value
NUMBERS = {
    ("of a split", 0.187, "bm25", "RR@10", ""): 0.1879,
    ("precision", 0.3, "bm25", "P@10", ""): 0.3,
    ("unjudged", 0.5, "bm25", "unjudged@10", ""): 0.25,
    ("rank", 735, "bm25", "rank", ""): 4,
    ("curve", 0.3, "re", "RR@10", 10): 0.2,
    ("saturated", 2, "re", "saturation(RR@10)", ""): 2,
    ("latency", 38, "bm25", "latency", ""): 38.5,
    ("of a batch", 290, "bm25", "latency@32", ""): 290.0,
    ("not run", 0.5, "nobody", "RR@10", ""): None,
    ("not deep", 0.5, "re", "RR@10", 7): None,
    ("others", 0.5, "", "RR@10", ""): None,
}


@pytest.fixture
def joined(tmp_path):
    lines = [
        f"<P>,Table 1,{row},c,{value},{system},dev,{measure},{depth}," for row, value, system, measure, depth in NUMBERS
    ]
    (tmp_path / "n.csv").write_text("\n".join([",".join(COLUMNS), *lines, "Q,T,r,c,1,nobody,dev,AP,,why"]) + "\n")
    times = {1: 38.5, 32: 290.0}.items()
    rows = [LatencyRow("bm25", "cpu", batch, 3, {"sequential": {"mean": value}}) for batch, value in times]
    judged = Judged(5, 3, results=8, unjudged=2, mean={"P@10": 0.3})
    measures = [Measures("bm25", "dev", 1, 1, {"RR@10": 0.1879, "RR@1000": 0.25}, judged=judged)]
    measures += [Measures("bm25", "test", 1, 1, {"RR@10": 0.9})]
    # Doubling the candidates adds 20 %, then 0.4 %; 3 and 10 are no powers of two.
    depths = [Depths("re", "dev", 1, 1, [1, 2, 3, 4, 10], {"RR@10": [0.25, 0.3, 0.3, 0.3012, 0.2]}, {})]
    latencies = [SimpleNamespace(split="dev", rows=rows)]
    found = SimpleNamespace(experiment=results_with(tmp_path), measures=measures, depths=depths, latencies=latencies)
    return join(read_published([tmp_path / "n.csv"]), values(found))


def test_each_number_has_ours_beside_it_and_the_difference(joined):
    found = joined.set_index("row")
    for (row, value, *_), ours in NUMBERS.items():
        expected = np.nan if ours is None else ours
        assert (found["ours"][row], found["difference"][row]) == pytest.approx(
            (expected, expected - value), nan_ok=True
        )
    assert coverage(joined).shown() == [["<P>", "11", "8"], ["Q", "1", "0"]]
    # Tables without a number of ours are left out.
    [table] = tables(joined)
    assert table.caption == "<P>, Table 1"
    assert table.shown()[0][:5] == ["of a split", "c", "0.1870", "0.1879", "+0.0009"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "found the columns a, b, expected published numbers, with the columns paper, table"),
        (",".join(COLUMNS) + "\np,t,r,c,x,s,d,AP,,\n", "could not convert string to float: 'x'"),
        (",".join(COLUMNS) + "\n" + "p,t,r,c,1,s,d,AP,,\n" * 2, "papers: found p, t, r, c again"),
        (None, "No such file"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, text, words):
    if text is not None:
        (tmp_path / "n.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        read_published([tmp_path / "n.csv"])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
