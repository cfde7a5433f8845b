"""What tests of the report and of the reproduction share: a paper, a name full of markup, and a check of pages."""

from html.parser import HTMLParser

import yaml

NASTY = '<script>alert("1")</script> & {{ 7 * 7 }}'
VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """A page: checks that tags are closed in order, and collects tags, ids, attributes and the cells of tables."""

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
        if tag == "div" and "aria-labelledby" in dict(attrs):
            self.rows = self.tables.setdefault(dict(attrs)["aria-labelledby"], [])
        elif tag == "table" and self.open[-1] != "div":
            self.rows = []
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
        assert not {"script", "img"} & {*self.seen}
        assert not [value for value in self.values("src") + self.values("href") if "//" in value]


CONSISTENCY = {"kind": "consistency", "title": "C", "split": "dev"}
DEPTHS = {"kind": "depths", "title": "Quality", "split": "dev", "measure": "RR@10", "depths": [1, 2, 4]}
DEPTHS |= {"tolerance": "exact"}
SIZES = {"kind": "systems", "title": "Size", "x_label": "pairs", "split": "dev", "measure": "RR@10"}
NOT_RUN = {"x": 10, "system": "none"}
PAPER = {
    "title": f"A paper {NASTY}",
    "reference": "Nobody, 2020",
    "reasons": {"seed": f"Another seed {NASTY}", "file": "Another file", "table": "All of it"},
    "tolerances": {"near": {"within": 0.001, "because": "rounding"}, "exact": {"within": 0, "because": "a count"}},
    "tables": {
        "table-1": {
            "number": "Table 1",
            "title": "Numbers.",
            "split": "dev",
            "scale": 100,
            "tolerance": "near",
            "why": ["table"],
            "columns": [
                {"label": "MRR@10", "measure": "RR@10", "why": ["file"]},
                {"label": "ms", "measure": "latency@32", "scale": 1},
                {"label": "at 4", "measure": "RR@10", "depth": 4},
            ],
            "rows": [
                {"label": "BM25", "system": "bm25", "values": [18.7, 290, None]},
                {"label": "Both", "systems": ["both", None, "re"], "values": [{"value": 20, "why": ["seed"]}, 7, 31.5]},
            ],
        }
    },
    "figures": {
        "figure-1": {
            "number": "Figure 1",
            "title": "Curves.",
            "panels": [
                {**DEPTHS, "series": [{"label": "Re", "system": "re", "saturation": 2, "published": [[1, 0.1]]}]},
                {**CONSISTENCY, "series": [{"label": "F", "system": "bm25"}]},
                {**SIZES, "series": [{"label": "Sizes", "points": [{"x": 1, "system": "bm25"}, NOT_RUN]}]},
            ],
        },
        "figure-2": {
            "number": "Figure 2",
            "title": "Nothing of ours.",
            "panels": [{**CONSISTENCY, "series": [{"label": "G", "system": "g"}]}],
        },
    },
}


def write_paper(folder, paper=None):
    """Write a paper's file; its path."""
    path = folder / "paper.yaml"
    path.write_text(yaml.safe_dump(paper or PAPER, sort_keys=False), "utf-8")
    return path


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
