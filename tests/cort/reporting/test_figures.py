import base64
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest

from cort.evaluation.curves import Depths
from cort.evaluation.measures import Measures
from cort.reporting import figures
from cort.reporting.figures import Line, Panel, round_numbers
from cort.reporting.panels import depth_panels, recall_panels, training_panels

SVG = "{http://www.w3.org/2000/svg}"
LINES = [Line("one <1>", [1.0, 2.0, 4.0], [0.1, 0.2, 0.3], 0, drop=4.0, bars=[(0, 0.5)] * 3)]
LINES += [Line("two", [1.0, 4.0], [0.2, 0.2], 1, drop=4.0), Line("", [1.0], [0.1], 1, "faint")]
PANEL = Panel("a <b> & $c$", "x", "y", LINES, [1.0, 2.0, 4.0])


def texts(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


def test_recall_is_drawn_by_growing_cutoff():
    measures = [
        Measures("a", "dev", 1, 2, {"R@1000": 0.9, "RR@10": 0.5, "R@50": 0.6}),
        Measures("b", "dev", 1, 2, {"R@200": 0.8}),
        Measures("c", "dev", 1, 2, {"RR@10": 0.8}),
        Measures("a", "one cutoff", 1, 2, {"R@50": 0.8}),
    ]
    [panel] = recall_panels(measures, {"a": 0, "b": 1, "c": 2})
    assert (panel.title, panel.ticks) == ("dev (2 queries)", [50, 200, 1000])
    assert {line.label: (line.x, line.y) for line in panel.lines} == {
        "a": ([50, 1000], [0.6, 0.9]),
        "b": ([200], [0.8]),
    }
    assert "a: 0.900 at 1,000.0; b: 0.800 at 200.0." in panel.summary


def test_lines_that_lie_on_each_other_are_told_apart():
    a, near, far = (
        Line(name, [1.0, 2.0], [0.5, y], look)
        for look, (name, y) in enumerate(zip("abc", (0.6, 0.601, 0.62), strict=True))
    )
    assert (figures.lies_on(a, near), figures.lies_on(a, far)) == (True, False)
    widths = [figures.draw([Panel("", "x", "y", lines)]).count("stroke-width: 5;") for lines in ([a, near], [a, far])]
    # In the picture and in its legend.
    assert widths == [2, 0]


def test_labels_of_axes_are_inside_of_the_picture():
    # Ticks whose labels become longer when the legend takes room.
    points = [(208, 0.352), (512, 0.303), (1296, 0.303), (720, 0.346), (720, 0.405), (720, 0.418)]
    lines = [Line("Pareto front", [208, 720], [0.352, 0.418], 0, "faint")]
    lines += [Line(f"{x}", [x], [y], look, bars=[(y - 0.025, y + 0.026)]) for look, (x, y) in enumerate(points)]
    svg = figures.draw([Panel("", "x", "nDCG@10", lines, round_numbers([208, 1296]))])
    [place] = [one for one in ElementTree.fromstring(svg).iter(f"{SVG}text") if "".join(one.itertext()) == "nDCG@10"]  # noqa: S314
    # Of the baseline of a text that is turned, whose letters are left of it.
    assert float(place.get("x")) >= 0.75 * 9


def test_depths_say_where_they_saturate():
    values, saturation = {"RR@10": [0.1, 0.2, 0.3], "AP": [0.1, None, 0.2]}, {"RR@10": 64, "AP": None}
    depths = [Depths("a", "dev", 1, 9, [1, 64, 1000], values, saturation)]
    depths += [Depths("b", "dev", 1, 9, [1, 2], {"RR@10": [0.1, 0.2]}, {})]
    first, second = depth_panels(depths, {"a": 0, "b": 1})
    assert (first.title, second.title) == ("RR@10, dev", "AP, dev")
    assert [(line.label, line.drop) for line in first.lines] == [("a", 64), ("b", None)]
    assert [one.x for one in second.lines] == [[1, 1000]]
    assert first.ticks == [1, 2, 64, 1000]


def test_training_has_raw_smoothed_and_validation_loss():
    steps = pd.Index(np.arange(1.0, 5.0))
    curve = pd.DataFrame(
        {"loss": [4.0, np.nan, 2.0, 1.0], "validation_loss": [np.nan, 3.0, np.nan, np.nan]}, index=steps
    )
    [panel] = training_panels({"c": curve})
    assert [(line.kind, line.x) for line in panel.lines] == [("faint", [1, 3, 4]), ("line", [1, 3, 4]), ("points", [2])]
    assert training_panels({"c": curve * np.nan}) == []
    assert len(figures.thin(pd.Series(range(5000)))) == figures.POINTS


def test_a_drawing_is_the_same_twice_whatever_the_reader_has_set_and_well_formed():
    import matplotlib

    once = figures.draw([PANEL, PANEL, PANEL])
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        assert once == figures.draw([PANEL, PANEL, PANEL])
    assert "<dc:date>" not in once
    for text in ("one <1>", "a <b> & $c$"):
        assert texts(once).count(text) == 3
    [(source, description)] = figures.embed([PANEL])
    assert texts(base64.b64decode(source.partition(",")[2])).count("two") == 1
    assert description == "a <b> & $c$: y by x. one <1>: 0.300 at 4.0; two: 0.200 at 4.0."


def test_all_marks_of_an_axis_are_drawn_and_a_missing_figure_says_so():
    panel = Panel("t", "x", "y", [Line("one", [5.2, 10.3], [0.1, 0.2], 0)], [5.0, 10.0, 20.0])
    assert {"5", "10", "20"} <= set(texts(figures.draw([panel])))
    assert texts(figures.draw([])) == [figures.NOTHING]


def test_an_axis_that_begins_at_zero_is_linear():
    panel = Panel("t", "x", "y", [Line("one", [0.0, 10.0], [0.1, 0.2], 0)], [0.0, 10.0])
    assert {"0", "2", "10"} <= set(texts(figures.draw([panel])))
    assert round_numbers([0.0, 3.0]) == []


@pytest.mark.parametrize(
    ("ticks", "kept"),
    [([7.0], [7.0]), ([1.0, 2.0, 1000.0, 1024.0], [1.0, 2.0, 1024.0]), ([50.0, 100.0, 200.0], [50.0, 100.0, 200.0])],
)
def test_tick_labels_do_not_touch(ticks, kept):
    assert figures.spread(ticks) == kept


def test_looks_differ():
    looks = [figures.style_of(look) for look in range(33)]
    assert len({(look["color"], repr(look["linestyle"])) for look in looks}) == len(looks)
    assert len({(look["marker"], repr(look["linestyle"])) for look in looks[:9]}) == 9


def test_colours_stand_out_from_white():
    def luminance(colour):
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    # WCAG 2.2, 1.4.11: graphical objects need a contrast of 3:1.
    assert all((1 + 0.05) / (luminance(colour) + 0.05) >= 3 for colour in figures.COLOURS)
