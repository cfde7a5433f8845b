"""Options shared by stages that evaluate runs."""

from cort.config.collection import AnySplit
from cort.runtime.sections import JsonFile, ParquetFile, Section, Several, Text, same_as


class SplitOptions(Section):
    """Options of stages that write an artifact about one split."""

    split: Text
    """Written into the output."""
    output: JsonFile


class JudgedOptions(SplitOptions):
    """Options of stages that need judgements."""

    qrels: ParquetFile
    """Judgements of the split."""
    relevance_level: int = same_as(AnySplit, "relevance_level")


class MeasureOptions(JudgedOptions):
    """Options of stages that measure one system."""

    measures: Several[Text]
    """RR@10, nDCG@20, R@1000, AP, ..."""
    system: Text
    """Written into the output."""
