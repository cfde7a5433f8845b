import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from cort.evaluation.curves import Depths
from cort.evaluation.measures import Measures
from cort.reporting import figures
from cort.reporting.inputs import Curve
from cort.reporting.panels import Line, Panel, depth_panels, looks, recall_panels, training_panels

SVG = "{http://www.w3.org/2000/svg}"
LINES = [Line("_one <1>", [1.0, 2.0, 4.0], [0.1, None, 0.3], 0, drop=4.0)]
LINES += [Line("two", [1.0, 4.0], [0.2, 0.2], 1, drop=4.0)]
PANEL = Panel("a <b> & $c$", "x", "y", LINES, 'says "it"', [1.0, 2.0, 4.0])


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]  # noqa: S314


def test_the_baseline_keeps_its_look() -> None:
    assert looks(["a", "b", "a", "c"], "b") == {"b": 0, "a": 1, "c": 2}
    assert looks(["a", "b"], None) == {"a": 1, "b": 2}


def test_recall_is_drawn_by_growing_cutoff() -> None:
    measures = [
        Measures("a", "dev", 1, 2, {"R@1000": 0.9, "RR@10": 0.5, "R@50": 0.6}),
        Measures("b", "dev", 1, 2, {"R@200": 0.8}),
        Measures("c", "dev", 1, 2, {"RR@10": 0.8}),
        Measures("a", "one cutoff", 1, 2, {"R@50": 0.8}),
    ]
    [panel] = recall_panels(measures, looks("abc", "a"))
    assert panel.title == "dev (2 queries)"
    assert panel.ticks == [50, 200, 1000]
    assert [(line.label, line.y) for line in panel.lines] == [("a", [0.6, None, 0.9]), ("b", [None, 0.8, None])]
    assert "a: 0.900 at 1,000; b: 0.800 at 200." in panel.summary


def test_depths_say_where_they_saturate() -> None:
    values, saturation = {"RR@10": [0.1, 0.2, 0.3], "AP": [0.1, None, 0.2]}, {"RR@10": 64, "AP": None}
    depths = [Depths("a", "dev", 1, 9, [1, 64, 1000], values, saturation)]
    depths += [Depths("b", "dev", 1, 9, [1, 2], {"RR@10": [0.1, 0.2]}, {})]
    first, second = depth_panels(depths, looks("ab", None))
    assert (first.title, second.title) == ("MRR@10, dev", "MAP, dev")
    assert [(line.label, line.drop) for line in first.lines] == [("a (saturates at 64)", 64), ("b", None)]
    assert [line.label for line in second.lines] == ["a (no saturation)"]
    assert first.ticks == [1, 2, 64, 1000]


def test_training_has_raw_smoothed_and_validation_loss() -> None:
    columns = {"step": np.arange(1.0, 5.0), "loss": np.array([4.0, np.nan, 2.0, 1.0])}
    columns |= {"validation_loss": np.array([np.nan, 3.0, np.nan, np.nan])}
    [panel] = training_panels([Curve("c", columns)])
    assert [(line.kind, line.x) for line in panel.lines] == [("faint", [1, 3, 4]), ("line", [1, 3, 4]), ("points", [2])]
    nothing = {name: np.full(4, np.nan) for name in columns} | {"step": columns["step"]}
    assert training_panels([Curve("c", nothing)]) == []


def test_a_drawing_is_the_same_twice_whatever_the_reader_has_set_and_well_formed() -> None:
    import matplotlib

    once = figures.draw([PANEL, PANEL, PANEL], "salt", "")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "svg.fonttype": "path"}):
        assert once == figures.draw([PANEL, PANEL, PANEL], "salt", "")
        assert matplotlib.rcParams["font.size"] == 30
    assert "DOCTYPE" not in once
    assert "<dc:date>" not in once
    assert texts(once).count("_one <1>") == 3
    assert texts(once).count("a <b> & $c$") == 3


def test_all_marks_of_an_axis_are_drawn_and_a_missing_figure_says_so() -> None:
    panel = Panel("t", "x", "y", [Line("one", [5.2, 10.3], [0.1, 0.2], 0)], "", [5.0, 10.0, 20.0])
    assert {"5", "10", "20"} <= set(texts(figures.draw([panel], "salt", "")))
    assert texts(figures.draw([], "salt", "nothing <here>")) == ["nothing <here>"]


def test_an_inline_drawing_follows_the_page() -> None:
    [svg] = figures.draw_inline([PANEL], "one")
    root = ElementTree.fromstring(svg)  # noqa: S314
    assert root.attrib["role"] == "img"
    assert "width" not in root.attrib
    assert root.findtext(f"{SVG}title") == PANEL.title
    assert root.findtext(f"{SVG}desc") == PANEL.summary
    assert "<style" not in svg
    assert "font-family" not in svg
    # Only grey shades of transparency may stay: every colour is a variable of the page.
    assert re.findall(r"#[0-9a-f]{6}", svg) == []
    assert "var(--ink)" in svg


def test_ids_of_inline_drawings_do_not_clash() -> None:
    drawings = figures.draw_inline([PANEL, PANEL], "one")
    ids = [re.findall(r'\bid="([^"]+)"', svg) for svg in drawings]
    assert not set(ids[0]) & set(ids[1])
    for svg, known in zip(drawings, ids, strict=True):
        assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg)) <= set(known)


@pytest.mark.parametrize(
    ("ticks", "kept"),
    [([7.0], [7.0]), ([1.0, 2.0, 1000.0, 1024.0], [1.0, 2.0, 1024.0]), ([50.0, 100.0, 200.0], [50.0, 100.0, 200.0])],
)
def test_tick_labels_do_not_touch(ticks, kept) -> None:
    assert figures.spread(ticks) == kept


def test_looks_differ() -> None:
    without_marker = [(colour, repr(dashes)) for colour, _, dashes in map(figures.style_of, range(33))]
    assert len(set(without_marker)) == len(without_marker)
    without_colour = [(marker, repr(dashes)) for _, marker, dashes in map(figures.style_of, range(9))]
    assert len(set(without_colour)) == len(without_colour)


def test_colours_stand_out_from_white() -> None:
    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    # WCAG 2.2, 1.4.11: graphical objects need a contrast of 3:1.
    assert all((1 + 0.05) / (luminance(colour) + 0.05) >= 3 for colour in figures.COLOURS)
