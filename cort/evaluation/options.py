"""Options shared by stages that evaluate runs."""

from __future__ import annotations

from dataclasses import dataclass

from cort.settings.collection import Split
from cort.system.options import optional, required


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """Options of stages that write an artifact about one split."""

    split: str = required("NAME", "written into the output")
    output: str = required("JSON")


@dataclass(frozen=True, kw_only=True)
class JudgedOptions(SplitOptions):
    """Options of stages that need judgements."""

    qrels: str = required("PARQUET", "judgements of the split")
    relevance_level: int = optional(Split.relevance_level, "lowest relevant grade", "GRADE")


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(JudgedOptions):
    """Options of stages that measure one system."""

    measures: tuple[str, ...] = required("NAME", "RR@10, nDCG@20, R@1000, AP, ...")
    system: str = required("NAME", "written into the output")
