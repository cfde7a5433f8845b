from dataclasses import replace

import pytest
from markupsafe import Markup

from cort.evaluation.depths import Depths
from cort.evaluation.measures import Measures
from cort.reporting.labels import MISSING, clip, highlight, stem
from cort.reporting.page import Value, saturation_rows, systems_blocks

# Table 1 of the paper.
BM25 = Measures("bm25", "dev", 1, 6980, {"RR@10": 0.187, "R@50": 0.592, "R@200": 0.738, "R@1000": 0.857})
CORT = Measures("cort", "dev", 1, 6980, {"RR@10": 0.271, "R@50": 0.664, "R@200": 0.786, "R@1000": 0.880})
BOTH = Measures("cort+bm25", "dev", 1, 6980, {"RR@10": 0.274, "R@50": 0.743, "R@200": 0.873, "R@1000": 0.949})


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("What it weighs", "how much does aluminum weigh", "What it <mark>weighs</mark>"),
        ("Aluminum, ALUMINUM.", "aluminum", "<mark>Aluminum</mark>, <mark>ALUMINUM</mark>."),
        ("is the how", "how is the", "is the how"),
        ("cities run by studies", "study running city", "<mark>cities</mark> <mark>run</mark> by <mark>studies</mark>"),
        ("<script>alert(1)</script> & 'q'", "script q", None),
        ("passage", "pass", "passage"),
        ("14 ft. and 140", "14 ft", "<mark>14</mark> <mark>ft</mark>. and 140"),
        ("", "x", ""),
        ("Straße", "STRASSE straße", "<mark>Straße</mark>"),
    ],
)
def test_words_of_the_query_are_marked(text, query, marked) -> None:
    found = highlight(text, query)
    assert isinstance(found, Markup)
    if marked is None:
        marked = "&lt;<mark>script</mark>&gt;alert(1)&lt;/<mark>script</mark>&gt; &amp; &#39;<mark>q</mark>&#39;"
    assert found == marked


def test_highlighting_changes_no_letter() -> None:
    text = 'The <b>"runner"</b> was running &amp; ran; 3 runs\n\ttabs'
    assert (
        highlight(text, "run <b> amp").striptags().split() == Markup("").join([highlight(text, "")]).striptags().split()
    )
    assert highlight(text, "").unescape() == text


@pytest.mark.parametrize(
    "family",
    [
        "weigh weighs weighing weighed",
        "study studies",
        "run runs running",
        "fall falls falling",
        "box boxes",
        "day days",
    ],
)
def test_inflections_share_a_stem(family) -> None:
    assert len({stem(word) for word in family.split()}) == 1


@pytest.mark.parametrize("pair", ["glass glas", "bus bu", "analysis analyse", "king k", "red r", "is i"])
def test_other_words_do_not(pair) -> None:
    one, other = pair.split()
    assert stem(one) != stem(other)


def test_differences_and_best_values() -> None:
    [block] = systems_blocks([BM25, Measures("cort", "dev", 1, 6980, {"RR@10": 0.271, "R@50": None})], "bm25")
    assert block.measures == ["MRR@10", "R@50", "R@200", "R@1000"]
    assert block.rows[0] == (
        "bm25",
        [Value("0.187", "", False), *(Value(v, "", True) for v in ("0.592", "0.738", "0.857"))],
    )
    assert block.rows[1] == ("cort", [Value("0.271", "+0.084", True), *[Value(MISSING, "", False)] * 3])
    assert block.queries == "6,980 queries"
    other = systems_blocks([BM25, Measures("cort", "dev", 2, 43, {"RR@10": 0.271})], None)[0]
    assert (other.queries, other.relevance_level) == ("43 to 6,980 queries", None)


def test_what_queries_lack_is_said_where_some_lack_something() -> None:
    assert systems_blocks([BM25, CORT], "bm25")[0].lacking == ""
    other = replace(CORT, without_results=1200, without_relevant=1)
    [block] = systems_blocks([replace(BM25, without_relevant=1), other], "bm25")
    assert block.lacking == "Means include queries without a relevant passage (1) and without results (cort 1,200)."


def test_saturation_rows() -> None:
    depths = Depths(
        "a", "dev", 1, 9, [1, 64, 1000], {"RR@10": [0.1, 0.2, 0.3], "AP": [0.1, 0.1, None]}, {"RR@10": 64, "AP": None}
    )
    first, second = saturation_rows([depths])
    assert first == ("a", "dev", "MRR@10", "64", "0.200", "1,000", "0.300")
    assert second == ("a", "dev", "MAP", "not reached", MISSING, "1,000", MISSING)


def test_long_passages_end_at_a_word() -> None:
    assert clip("short") == "short"
    assert clip("one two three", 9) == "one two …"
    assert clip("x" * 10, 4) == "xxxx …"
