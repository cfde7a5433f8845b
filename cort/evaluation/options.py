"""Options shared by stages that evaluate runs."""

from cort.runtime.options import options_class, required
from cort.settings.collection import Split
from cort.settings.fields import as_key


@options_class
class SplitOptions:
    """Options of stages that write an artifact about one split."""

    split: str = required("NAME", "written into the output")
    output: str = required("JSON")


@options_class
class JudgedOptions(SplitOptions):
    """Options of stages that need judgements."""

    qrels: str = required("PARQUET", "judgements of the split")
    relevance_level: int = as_key(Split, "relevance_level")


@options_class
class MeasureOptions(JudgedOptions):
    """Options of stages that measure one system."""

    measures: tuple[str, ...] = required("NAME", "RR@10, nDCG@20, R@1000, AP, ...")
    system: str = required("NAME", "written into the output")
