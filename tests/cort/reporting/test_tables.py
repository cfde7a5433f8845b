import csv
import io
from dataclasses import replace

import pytest

from cort.evaluation.measures import Measures
from cort.reporting import labels
from cort.reporting.inputs import Stage
from cort.reporting.tables import Column, Table, best_shown, stages_table, systems_table, to_csv, to_latex, to_markdown

MEASURES = [
    Measures("bm25", "dev", 1, 6980, {"RR@10": 0.1874122774, "R@50": 0.592}),
    Measures("cort_1|2", "dev", 1, 6980, {"RR@10": 0.27, "R@50": None}),
    Measures("bm25", "dl19", 2, 43, {"AP": 1 / 3}),
]


def test_csv_has_all_digits_and_empty_cells() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(systems_table(MEASURES)))))
    assert rows[0] == ["split", "system", "queries", "relevance_level", "RR@10", "R@50", "AP"]
    assert rows[1:] == [
        ["dev", "bm25", "6980", "1", "0.1874122774", "0.592", ""],
        ["dev", "cort_1|2", "6980", "1", "0.27", "", ""],
        ["dl19", "bm25", "43", "2", "", "", repr(1 / 3)],
    ]


def test_what_queries_lack_has_a_column_where_some_lack_something() -> None:
    lacking = [*MEASURES[:2], replace(MEASURES[2], without_results=5)]
    rows = list(csv.reader(io.StringIO(to_csv(systems_table(lacking)))))
    assert [row[3:6] for row in rows] == [
        ["relevance_level", "without_results", "RR@10"],
        ["1", "0", "0.1874122774"],
        ["1", "0", "0.27"],
        ["2", "5", ""],
    ]


def test_markdown_is_aligned_escaped_and_marks_the_best() -> None:
    lines = to_markdown(systems_table(MEASURES)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[0].split(" | ")] == [
        "| split", "system", "queries", "relevant from", "MRR@10", "R@50", "MAP |",
    ]  # fmt: skip
    assert "cort\\_1\\|2" in lines[3]
    assert lines[3].count("**0.270**") == 1
    assert lines[2].count("**0.592**") == 1
    assert "0.187 |" in lines[2]
    assert lines[2].rstrip(" |").endswith(labels.MISSING)


def test_latex_is_escaped_and_has_the_rules_of_booktabs() -> None:
    text = to_latex(systems_table(MEASURES))
    assert text.startswith("\\begin{tabular}{llrrrrr}\n\\toprule\nsplit & system & queries & relevant from & MRR@10")
    assert "dev & cort\\_1\\textbar{}2 & 6,980 & 1 & \\textbf{0.270} & -- & -- \\\\\n\\midrule\ndl19" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")


def test_latex_escapes_every_special_character() -> None:
    table = Table([Column("a", "a_b&c%d#e$f")], [["~^\\{}"]])
    header, body = to_latex(table).splitlines()[2:5:2]
    assert header == "a\\_b\\&c\\%d\\#e\\$f \\\\"
    assert body == "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\{\\} \\\\"


def test_equal_as_shown_is_equally_best() -> None:
    assert best_shown([0.3876, 0.3884, None, 0.3]) == {0, 1}
    assert best_shown([None, None]) == set()


def test_stages_without_benchmarks_is_a_header() -> None:
    assert to_csv(stages_table([])) == "stage,jobs,seconds,longest_seconds,peak_memory_mb\n"
    assert to_markdown(stages_table([])).count("\n") == 2
    row = to_csv(stages_table([Stage("encode", 2, 4.125, 2.5, None)])).splitlines()[1]
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
    assert [labels.memory(size) for size in (410.4, 999.7, 12_500, None)] == ["410 MB", "1.0 GB", "12.5 GB", "–"]  # noqa: RUF001
