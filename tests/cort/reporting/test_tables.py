import csv
import io
import json
from dataclasses import replace

import pytest
from markupsafe import Markup

from cort.evaluation.comparisons import Comparisons
from cort.evaluation.measures import Measures
from cort.formats.artifacts import read_artifact
from cort.reporting import labels, tables
from cort.reporting.inputs import Stage
from cort.reporting.labels import clip, highlight, stem
from tests.support.reporting import comparisons

MEASURES = [
    Measures("bm25", "dev", 1, 6980, {"RR@10": 0.1874122774, "R@50": 0.592}),
    Measures("cort_1|2", "dev", 1, 6980, {"RR@10": 0.27, "R@50": None}),
    Measures("bm25", "dl19", 2, 43, {"AP": 1 / 3}),
]


def rows_of(measures):
    """Rows of the CSV table of systems."""
    return list(csv.reader(io.StringIO(tables.to_csv(tables.systems_table(measures)))))


def test_csv_has_all_digits_and_empty_cells() -> None:
    rows = rows_of(MEASURES)
    assert rows[0] == ["split", "system", "queries", "relevance_level", "RR@10", "R@50", "AP"]
    assert rows[1:] == [
        ["dev", "bm25", "6980", "1", "0.1874122774", "0.592", ""],
        ["dev", "cort_1|2", "6980", "1", "0.27", "", ""],
        ["dl19", "bm25", "43", "2", "", "", repr(1 / 3)],
    ]
    # What queries lack has a column where some lack something.
    rows = rows_of([*MEASURES[:2], replace(MEASURES[2], without_results=5)])
    assert rows[0][3:6] == ["relevance_level", "without_results", "RR@10"]
    assert [row[3:6] for row in rows[1:]] == [["1", "0", "0.1874122774"], ["1", "0", "0.27"], ["2", "5", ""]]


def test_markdown_is_aligned_escaped_and_marks_the_best() -> None:
    lines = tables.to_markdown(tables.systems_table(MEASURES)).splitlines()
    assert len({len(line) for line in lines}) == 1
    header = ["| split", "system", "queries", "relevant from", "MRR@10", "R@50", "MAP |"]
    assert [cell.strip() for cell in lines[0].split(" | ")] == header
    assert "cort\\_1\\|2" in lines[3]
    assert lines[3].count("**0.270**") == 1
    assert lines[2].count("**0.592**") == 1
    assert "0.187 |" in lines[2]
    assert lines[2].rstrip(" |").endswith(labels.MISSING)


def test_latex_is_escaped_and_has_the_rules_of_booktabs() -> None:
    text = tables.to_latex(tables.systems_table(MEASURES))
    assert text.startswith("\\begin{tabular}{llrrrrr}\n\\toprule\nsplit & system & queries & relevant from & MRR@10")
    assert "dev & cort\\_1\\textbar{}2 & 6,980 & 1 & \\textbf{0.270} & -- & -- \\\\\n\\midrule\ndl19" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")
    table = tables.Table([tables.Column("a", "a_b&c%d#e$f")], [["~^\\{}"]])
    header, body = tables.to_latex(table).splitlines()[2:5:2]
    assert header == "a\\_b\\&c\\%d\\#e\\$f \\\\"
    assert body == "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\{\\} \\\\"


def test_equal_as_shown_is_equally_best() -> None:
    systems = [Measures("x", "dev", 1, 1, {"AP": value, "RR": None}) for value in (0.3876, 0.3884, None, 0.3)]
    assert tables.best_systems(systems, "AP") == {0, 1}
    assert tables.best_systems(systems, "RR") == set()


def test_stages_without_benchmarks_is_a_header() -> None:
    assert tables.to_csv(tables.stages_table([])) == "stage,jobs,seconds,longest_seconds,peak_memory_mb\n"
    assert tables.to_markdown(tables.stages_table([])).count("\n") == 2
    row = tables.to_csv(tables.stages_table([Stage("encode", 2, 4.125, 2.5, None)])).splitlines()[1]
    assert row == "encode,2,4.125,2.5,"


@pytest.mark.parametrize(
    ("name", "label"),
    [("RR@10", "MRR@10"), ("RR", "MRR"), ("AP(rel=2)@1000", "MAP(rel=2)@1000"), ("APx", "APx"), ("nDCG@20", "nDCG@20")],
)
def test_measures_have_their_usual_names(name, label) -> None:
    assert labels.measure_label(name) == label


def test_numbers_are_shown_for_readers() -> None:
    assert [labels.fixed(value) for value in (0.1235, -0.0001, 1234.5, None)] == ["0.123", "0.000", "1,234.500", "–"]  # noqa: RUF001
    assert [labels.signed(value) for value in (0.0871, -0.111, 0.0004)] == ["+0.087", f"{labels.MINUS}0.111", "±0.000"]
    assert labels.plural(1, "query", "queries") == "1 query"
    assert labels.plural(6980, "query", "queries") == "6,980 queries"
    spans = (0.44, 12.4, 59.6, 60, 125, 3599.6, 3600, 86_860)
    assert [labels.duration(span) for span in spans] == [
        "0.4 s", "12 s", "1 min 00 s", "1 min 00 s", "2 min 05 s", "1 h 00 min", "1 h 00 min", "24 h 08 min",
    ]  # fmt: skip
    p_values = [labels.p_value(value) for value in (None, 0.00009, 0.0001, 0.25, 1.0)]
    assert p_values == [labels.MISSING, "<0.0001", "0.0001", "0.2500", "1.0000"]
    assert labels.shown_interval(0.1, 0.25) == "0.100 to 0.250"
    assert labels.shown_interval(-0.01, 0.1, sign=True) == f"{labels.MINUS}0.010 to +0.100"
    assert [labels.memory(size) for size in (410.4, 999.7, 12_500, None)] == ["410 MB", "1.0 GB", "12.5 GB", "–"]  # noqa: RUF001


SYSTEMS = [
    Measures("bm25", "dev", 1, 6980, {"RR@10": 0.187, "R@50": 0.592}),
    Measures("cort_1", "dev", 1, 6980, {"RR@10": 0.274, "R@50": 0.664}),
    Measures("bm25", "dl19", 2, 43, {"AP": 0.29}),
    Measures("cort_1", "dl19", 2, 43, {"AP": 0.297}),
]


@pytest.fixture
def both(tmp_path):
    """Splits with different measures."""
    contents = {"dev": comparisons(), "dl19": comparisons("dl19", [("AP", False)])}
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return [read_artifact(tmp_path / f"{name}.json", Comparisons) for name in contents]


def test_significant_differences_have_an_asterisk_that_a_note_explains(both):
    assert tables.significant_differences(both) == {("dev", "cort_1", "RR@10")}
    table = tables.systems_table(SYSTEMS, both)
    lines = tables.to_markdown(table).splitlines()
    assert [line.count("\\*") for line in lines] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert "**0.274**\\* |" in lines[3]
    assert lines[-1].startswith("\\* differs significantly from bm25")
    assert all(number in lines[-1] for number in ("10,000", "0.05"))
    latex = tables.to_latex(table)
    assert r"\textbf{0.274}* &" in latex
    assert latex.splitlines()[-1].startswith("% * differs significantly")
    assert "*" not in tables.to_csv(table)
    # Without comparisons nothing is marked.
    assert tables.legend([]) == ""
    assert "*" not in tables.to_markdown(tables.systems_table(SYSTEMS, [])).replace("**", "")


def test_the_tables_of_comparisons_and_lengths_have_every_digit(both):
    lines = tables.to_csv(tables.comparisons_table(both)).splitlines()
    assert lines[0].startswith("split,baseline,system,relation,measure,verdict,mean,mean_low,mean_high,baseline_mean,")
    assert lines[1] == (
        "dev,bm25,cort_1,baseline,MRR@10,WIN,0.274,0.26,0.29,0.187,0.18,0.2,0.087,-0.01,0.1,1e-09,3e-09,0.0001,0.0003,yes,2000,4000,980,400"
    )
    assert [line.split(",")[:2] for line in lines[1:]] == [
        *(["dev", other] for other in ("bm25", "bm25", "cort_0", "cort_0")),
        *(["dl19", other] for other in ("bm25", "cort_0")),
    ]
    # What was not reached is empty.
    lines = tables.to_csv(tables.lengths_table(both)).splitlines()
    assert lines[1:3] == ["dev,cort_1,137,0.859,bm25,1000,0.857", "dev,weak,,,bm25,1000,0.857"]


MARKED = "<mark>script</mark>"


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("What it weighs", "how much does aluminum weigh", "What it <mark>weighs</mark>"),
        ("Aluminum, ALUMINUM.", "aluminum", "<mark>Aluminum</mark>, <mark>ALUMINUM</mark>."),
        ("is the how", "how is the", "is the how"),
        ("cities run by studies", "study running city", "<mark>cities</mark> <mark>run</mark> by <mark>studies</mark>"),
        ("<script>1</script> & 'q'", "script q", f"&lt;{MARKED}&gt;1&lt;/{MARKED}&gt; &amp; &#39;<mark>q</mark>&#39;"),
        ("passage", "pass", "passage"),
        ("14 ft. and 140", "14 ft", "<mark>14</mark> <mark>ft</mark>. and 140"),
        ("", "x", ""),
        ("Straße", "STRASSE straße", "<mark>Straße</mark>"),
    ],
)
def test_words_of_the_query_are_marked(text, query, marked) -> None:
    found = highlight(text, query)
    assert isinstance(found, Markup)
    assert found == marked


def test_highlighting_changes_no_letter() -> None:
    text = 'The <b>"runner"</b> was running &amp; ran; 3 runs\n\ttabs'
    marked, plain = highlight(text, "run <b> amp"), highlight(text, "")
    assert marked.striptags().split() == plain.striptags().split()
    assert plain.unescape() == text


def test_inflections_share_a_stem_and_other_words_do_not() -> None:
    families = ["weigh weighs weighing weighed", "study studies", "run runs running", "fall falls falling", "box boxes"]
    for family in [*families, "day days"]:
        assert len({stem(word) for word in family.split()}) == 1, family
    for pair in ("glass glas", "bus bu", "analysis analyse", "king k", "red r", "is i"):
        assert len({stem(word) for word in pair.split()}) == 2, pair


def test_long_passages_end_at_a_word() -> None:
    assert clip("short") == "short"
    assert clip("one two three", 9) == "one two …"
    assert clip("x" * 10, 4) == "xxxx …"
