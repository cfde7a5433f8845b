"""What tests of reports share: a name full of markup, comparisons, and a check of pages."""

from html.parser import HTMLParser

from cort.evaluation.comparisons import Comparison

NASTY = '<script>alert("1")</script> & {{ 7 * 7 }}'
VOID = {"meta", "link", "br", "img"}


class Outline(HTMLParser):
    """A page: checks that tags are closed in order, and collects tags, ids, attributes and the cells of tables.

    Tables are named after their section and their place in it: `systems-1`.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.seen.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag == "section":
            self.section, self.number = dict(attrs)["aria-labelledby"], 0
        elif tag == "table":
            self.number += 1
            self.rows = self.tables.setdefault(f"{self.section}-{self.number}", [])
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data) -> None:
        if {"td", "th"} & {*self.open}:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def values(self, name) -> list[str]:
        """List all values of an attribute."""
        return [value for key, value in self.attributes if key == name]

    def check(self) -> None:
        """Check that ids are unique, that every label exists, and that nothing is loaded or run."""
        ids = self.values("id")
        assert len(ids) == len(set(ids))
        assert {one for label in self.values("aria-labelledby") for one in label.split()} <= {*ids}
        assert "script" not in self.seen
        assert len(self.values("alt")) == self.seen.count("img")
        assert all(value.startswith("data:image/svg+xml;base64,") for value in self.values("src"))
        assert not [value for value in self.values("href") if "//" in value]


def comparison(system, baseline="bm25", **changes):
    """A comparison by RR@10."""
    row = comparisons()["comparisons"][0]
    return Comparison(**row | {"system": system, "baseline": baseline} | changes)


def comparisons(split="dev", measures=(("RR@10", True), ("R@50", False))):
    """Content of a file of comparisons: cort_1 with the baseline bm25 and with its start, by measures of a split."""
    numbers = {
        **{"mean": 0.274, "mean_low": 0.26, "mean_high": 0.29},
        **{"baseline_mean": 0.187, "baseline_low": 0.18, "baseline_high": 0.2},
        **{"difference": 0.087, "difference_low": -0.01, "difference_high": 0.1},
        **{"randomization_test": 0.0001, "randomization_test_holm": 0.0003},
        **{"won": 2000, "tied": 4000, "lost": 980, "queries_needed": 400},
    }
    rows = [
        {
            **{"system": "cort_1", "baseline": other, "relation": relation, "measure": name, **numbers},
            **{"queries_to_decide": 200, "family": "baseline" if other == "bm25" else "others"},
            **{"verdict": "WIN" if yes and other == "bm25" else "NOT SIGNIFICANT", "significant": yes},
        }
        for other, relation in (("bm25", "baseline"), ("cort_0", "start"))
        for name, yes in measures
    ]
    length = {"system": "cort_1", "depth": 137, "recall": 0.859, "baseline_depth": 1000, "baseline_recall": 0.857}
    unreached = {**length, "system": "weak", "depth": None, "recall": None}
    settings = {"confidence": 0.95, "resamples": 10_000, "alpha": 0.05, "seed": 42}
    content = {"split": split, "baseline": "bm25", "queries": 6980, **settings}
    return content | {"comparisons": rows, "list_lengths": [length, unreached]}
