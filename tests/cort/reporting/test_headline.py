import pytest

from cort.evaluation.comparisons import Comparison, Comparisons
from cort.evaluation.measures import Measures
from cort.reporting.headline import Headline, headlines
from cort.reporting.labels import MINUS

# Table 1 of the paper, and Figure 2 as far as the kind of system goes.
VALUES = {"bm25": (0.187, 0.857), "cort": (0.271, 0.880), "both": (0.274, 0.949), "re-ranked": (0.384, 0.949)}


def measured(name, top, everything):
    return Measures(name, "dev", 1, 6980, {"RR@10": top, "R@1000": everything})


MEASURES = {name: measured(name, *found) for name, found in VALUES.items()}
PAIRS = [("cort", "bm25", "baseline"), ("both", "cort", "part"), ("both", "bm25", "part")]
PAIRS += [("re-ranked", "both", "part"), ("re-ranked", "bm25", "baseline")]


def compared(*pairs, unsure=(), values=VALUES):
    """Comparisons with intervals of .01 either side; those in `unsure` are not significant."""
    rows = []
    for system, other, relation in pairs:
        for column, measure in enumerate(("RR@10", "R@1000")):
            mean, before = values[system][column], values[other][column]
            difference = mean - before
            significant = abs(difference) > 1e-9 and (system, other, measure) not in unsure
            verdict = "NOT SIGNIFICANT" if not significant else "WIN" if difference > 0 else "LOSS"
            around = (difference, difference - 0.01, difference + 0.01)
            numbers = (mean, mean, mean, before, before, before, *around, 0.1, 0.1, 0.1, 0.1, significant, 1, 1, 1, 400)
            rows.append(Comparison(system, other, relation, measure, verdict, *numbers))
    return [Comparisons("dev", "bm25", 6980, 0.95, 1000, 0.05, 42, rows, [])]


def said(names, *pairs, **settings):
    [found] = headlines("MS MARCO", [MEASURES[name] for name in names], compared(*pairs, **settings), "bm25")
    return found


def test_the_best_system_leads_and_each_step_says_what_it_adds():
    assert said(VALUES, *PAIRS) == Headline(
        "On 6,980 queries of MS MARCO, dev, re-ranked has the highest MRR@10, 0.384: "
        "+0.197 (+0.187 to +0.207) over bm25.",
        f"Step by step, in MRR@10: both adds +0.003 ({MINUS}0.007 to +0.013) to cort; "
        "re-ranked adds +0.110 (+0.100 to +0.120) to both. "
        "R@1000 of re-ranked is 0.949, +0.092 (+0.082 to +0.102) over bm25.",
    )


def test_what_is_not_significant_is_not_called_a_gain():
    found = said(VALUES, *PAIRS, unsure=[("both", "cort", "RR@10"), ("re-ranked", "bm25", "RR@10")])
    best = "re-ranked has the highest MRR@10, 0.384, but does not differ significantly from bm25: "
    assert found.lead.endswith(f"{best}+0.197 (+0.187 to +0.207).")
    assert f"both does not differ significantly from cort: +0.003 ({MINUS}0.007 to +0.013);" in found.further


def test_where_nothing_beats_the_baseline_that_is_said():
    values = {**VALUES, "bm25": (0.343, 0.858), "both": (0.228, 0.925), "cort": (0.119, 0.820)}
    measures = [measured(name, *values[name]) for name in ("bm25", "cort", "both")]
    [found] = headlines("d", measures, compared(*PAIRS[:3], values=values), "bm25")
    assert found.lead == (
        "On 6,980 queries of d, dev, no system beats bm25 in MRR@10, 0.343; the next, both, has 0.228, "
        f"{MINUS}0.115 ({MINUS}0.125 to {MINUS}0.105)."
    )
    assert found.further == "R@1000 is highest with both, 0.925, +0.067 (+0.057 to +0.077) over bm25."
    [found] = headlines("d", measures[:2], compared(*PAIRS[:1], values=values), "bm25")
    assert found.further == "R@1000 of bm25 is 0.858."


def test_a_step_that_loses_and_a_training_are_told():
    values = {**VALUES, "start": (0.39, 0.9), "tuned": (0.387, 0.95), "both": (0.41, 0.95)}
    pairs = [("tuned", "start", "start"), ("both", "bm25", "part"), ("both", "tuned", "part")]
    measures = [Measures(name, "dev", 1, 9, {"RR@10": values[name][0]}) for name in ("bm25", "start", "tuned", "both")]
    [found] = headlines("d", measures, compared(*pairs, values=values), "bm25")
    assert found.further == (
        f"Step by step, in MRR@10: tuned falls below start: {MINUS}0.003 ({MINUS}0.013 to +0.007); "
        "both adds +0.023 (+0.013 to +0.033) to tuned."
    )


@pytest.mark.parametrize(
    ("measures", "lead"),
    [
        ([MEASURES["bm25"]], "bm25 reaches MRR@10 0.187."),
        ([MEASURES["bm25"], MEASURES["cort"]], "cort has the highest MRR@10, 0.271."),
        # Three decimals are shown, and those are equal.
        ([MEASURES["bm25"], Measures("x", "dev", 1, 9, {"RR@10": 0.1871})], "no system beats bm25 in MRR@10, 0.187;"),
    ],
)
def test_without_comparisons_there_are_no_differences(measures, lead):
    [found] = headlines("d", measures, [], "bm25")
    assert found.lead.startswith(f"On 6,980 queries of d, dev, {lead}")


def test_a_split_without_known_values_has_no_headline():
    for means in ({"RR@10": None, "AP": 0.1}, {}):
        assert headlines("d", [Measures("x", "dev", 1, 1, means)], []) == []
