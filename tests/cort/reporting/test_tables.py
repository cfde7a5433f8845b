import csv
import io
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cort.evaluation.comparisons import Comparisons
from cort.evaluation.measures import Measures
from cort.formats.artifacts import write_artifact
from cort.reporting import sections
from cort.reporting.format import MINUS, MISSING, fixed, signed
from cort.reporting.results import Job, read_all
from cort.reporting.tables import Column, Table, frame_of, joined, tabulate, to_csv, to_latex
from tests.support.online import results_with
from tests.support.reporting import comparisons

MEASURES = [
    Measures("bm25", "dev", 1, 6980, {"RR@10": 0.1874122774, "R@50": 0.592}),
    Measures("cort_1|2", "dev", 1, 6980, {"RR@10": 0.27, "R@50": None}),
    Measures("bm25", "dl19", 2, 43, {"AP": 1 / 3}),
]


LABELS = {"bm25": "BM25 & more", "cort_1|2": "cort_1|2", "cort_1": "CoRT"}


def rows_of(table):
    return list(csv.reader(io.StringIO(to_csv(table))))


def test_no_text_in_csv_is_a_formula_and_numbers_stay_numbers():
    rows = rows_of(sections.systems_table([Measures("=1+1", "dev", 1, 7, {"RR@10": -0.5})]))
    assert rows[1] == ["dev", "'=1+1", "7", "1", "-0.5"]


def test_csv_has_all_digits_and_empty_cells():
    rows = rows_of(sections.systems_table(MEASURES))
    assert rows[0] == ["split", "system", "queries", "relevant from", "RR@10", "R@50", "AP"]
    assert rows[1:] == [
        ["dev", "bm25", "6980", "1", "0.1874122774", "0.592", ""],
        ["dev", "cort_1|2", "6980", "1", "0.27", "", ""],
        ["dl19", "bm25", "43", "2", "", "", repr(1 / 3)],
    ]
    # What queries lack has a column where some lack something.
    rows = rows_of(sections.systems_table([*MEASURES[:2], replace(MEASURES[2], without_results=5)]))
    assert [row[3:6] for row in rows] == [
        ["relevant from", "without_results", "RR@10"],
        ["1", "0", "0.1874122774"],
        ["1", "0", "0.27"],
        ["2", "5", ""],
    ]


def test_the_best_of_a_split_are_bold():
    table = sections.systems_table(MEASURES)
    assert table.bold == {(1, "RR@10"), (0, "R@50"), (2, "AP")}
    assert [row[4:] for row in table.shown()] == [
        *(["0.187", "0.592", MISSING], ["0.270", MISSING, MISSING]),
        [MISSING, MISSING, "0.333"],
    ]


def test_columns_take_attributes_or_functions_of_rows():
    whole = SimpleNamespace(split="dev", size=9, parts=[SimpleNamespace(name="a", size=1), SimpleNamespace(name="b")])
    columns = [Column("split"), Column("name of it", "name", heading="name"), Column("size")]
    columns += [Column("half", lambda row: row.size / 2, fixed)]
    table = tabulate("t", "of it.", columns, joined([whole], "parts"), block="split")
    # The row wins; what it lacks is that of the whole.
    assert rows_of(table) == [
        ["split", "name of it", "size", "half"],
        ["dev", "a", "1", "0.5"],
        ["dev", "b", "9", "4.5"],
    ]
    assert table.shown() == [["dev", "a", "1", "0.500"], ["dev", "b", "9", "4.500"]]
    assert [table.heading(name) for name in table.columns] == ["split", "name", "size", "half"]
    with pytest.raises(AttributeError, match="color"):
        tabulate("t", "", [Column("color")], joined([whole], "parts"))


def test_latex_is_escaped_and_has_the_rules_of_booktabs():
    lines = to_latex(sections.paper_table(sections.systems_table(MEASURES), LABELS)).splitlines()
    caption = "Means over the queries; the best of each column in bold."
    assert lines[2:5] == [rf"\caption{{{caption}}}", r"\label{tab:systems}", r"\begin{tabular}{lrrr}"]
    assert lines[5:-2] == [
        r"\toprule",
        r"system & RR@10 & R@50 & AP \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\emph{dev, 6,980 queries}} \\",
        r"BM25 \& more & 0.187 & \textbf{0.592} & -- \\",
        r"cort\_1\textbar{}2 & \textbf{0.270} & -- & -- \\",
        r"\midrule",
        r"\multicolumn{4}{l}{\emph{dl19, 43 queries}} \\",
        r"BM25 \& more & -- & -- & \textbf{0.333} \\",
        r"\bottomrule",
    ]
    table = Table("", "", frame_of([["~^\\{}*", -0.5]], ["a-b&c%d#e$f", "x"]), {"x": signed})
    header, body = to_latex(table).splitlines()[6:9:2]
    assert header == "a-b\\&c\\%d\\#e\\$f & x \\\\"
    assert body == "\\textasciitilde{}\\textasciicircum{}\\textbackslash{}\\{\\}$^{*}$ & $-$0.500 \\\\"


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex: apt-get install texlive-latex-recommended")
def test_a_paper_takes_the_tables_as_they_are(tmp_path, both):
    systems = sections.systems_table([*MEASURES, Measures("cort_1", "dev", 1, 6980, {"RR@10": 0.274})], both)
    odd = Table(
        "odd",
        "all of `it`: 5 % & *.",
        frame_of([["~^\\{}*<|>$#_é", -0.5], [MISSING, None]], ["a_b", "x"]),
        {"x": signed},
    )
    made = [sections.paper_table(systems, LABELS, both), sections.comparisons_table(both, {})]
    made += [sections.stages_table([]), odd]
    paper = ["\\documentclass{article}", "\\usepackage{booktabs}", "\\begin{document}", *map(to_latex, made)]
    (tmp_path / "paper.tex").write_text("\n".join([*paper, "\\ref{tab:systems}", "\\end{document}"]), "utf-8")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "paper.tex"]
    assert r"$^{*}$ differs significantly from BM25 \& more: p of the paired randomisation test" in paper[3]
    assert "Holm's method" in paper[3]
    for _ in range(2):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
    assert "undefined references" not in done.stdout
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


def test_html_has_a_part_for_each_block_and_typeset_numbers():
    rows = [["dev", "a", -0.5], ["test", "b", 1.0], ["dev", "c", None]]
    table = Table("t", "of it.", frame_of(rows, ["split", "name", "value"]), {"value": signed}, {"value": "V"}, "split")
    parts = [(caption, head, [[cell.text for cell in row] for row in rows]) for caption, head, rows in table.parts()]
    assert parts == [
        ("dev: of it.", ["name", "V"], [["a", f"{MINUS}0.500"], ["c", MISSING]]),
        ("test: of it.", ["name", "V"], [["b", "+1.000"]]),
    ]
    assert table.only(["name"], [0, 2]).shown() == [["a"], ["c"]]


def test_a_table_without_rows_is_a_header():
    empty = sections.stages_table([])
    assert to_csv(empty) == "stage,jobs,total (s),longest job (s),peak memory (MB)\n"
    assert rows_of(sections.stages_table([Job("encode", 2, 4.125, 2.5, None)]))[1] == [
        "encode",
        "2",
        "4.125",
        "2.5",
        "",
    ]


@pytest.fixture
def both(tmp_path):
    """Comparisons on splits with different measures."""
    for name, content in {"dev": comparisons(), "dl19": comparisons("dl19", [("AP", False)])}.items():
        write_artifact(tmp_path / f"{name}.json", content)
    results = results_with(tmp_path, splits={name: {"queries": "q", "qrels": "j"} for name in ("dev", "dl19")})
    return read_all(results, [tmp_path / "dev.json", tmp_path / "dl19.json", tmp_path / "none.json"], Comparisons)


def test_significant_differences_have_an_asterisk_that_a_note_explains(both):
    systems = [replace(MEASURES[0], mean={"RR@10": 0.187}), Measures("cort_1", "dev", 1, 6980, {"RR@10": 0.274})]
    table = sections.systems_table(systems, both)
    assert table.marked == {(1, "RR@10")}
    assert table.note.startswith("* differs significantly from bm25")
    assert all(number in table.note for number in ("10,000", "0.05"))
    assert r"\textbf{0.274}$^{*}$ \\" in to_latex(table)
    assert "*" not in to_csv(table)


def test_the_tables_of_comparisons_and_lengths_have_every_digit(both):
    table = sections.comparisons_table(both, {("dev", "cort_1", "bm25"): "page#a"})
    rows = rows_of(table)
    assert rows[1][:14] == [
        *("dev", "cort_1", "bm25", "WIN", "RR@10", "0.274", "0.187", "0.087", "-0.01", "0.1", "0.0001", "0.0003"),
        *("1 comparison with bm25", "2000"),
    ]
    assert table.shown()[0][10:12] == ["0.0001", "0.0003"]
    assert rows[1][-1].startswith("interval and p disagree")
    assert [row[:3:2] for row in rows[1:]] == [
        *(["dev", other] for other in ("bm25", "bm25", "cort_0", "cort_0")),
        *(["dl19", other] for other in ("bm25", "cort_0")),
    ]
    assert table.links == {(row, "against"): "page#a" for row in (0, 1)}
    # What was not reached is empty.
    rows = rows_of(sections.lengths_table(both))
    assert rows[1:3] == [
        ["dev", "cort_1", "137", "0.859", "bm25", "1000", "0.857"],
        ["dev", "weak", "", "", "bm25", "1000", "0.857"],
    ]
