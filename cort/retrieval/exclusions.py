"""Results that are dropped before a run is cut to its depth: documents that are the query, and pairs in a file."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.config.collection import Aggregation, AnySplit
from cort.config.fields import Depth
from cort.formats import rows
from cort.formats.fields import BadLine, spellings_of, split_fields, writable_id
from cort.formats.judgements import DOC_IDS, QUERY_IDS, pair_of
from cort.formats.lines import iter_lines, iter_records
from cort.formats.pairs import Pairs, match
from cort.formats.runs import Run, top
from cort.retrieval.documents import documents_of
from cort.runtime.sections import AnyFile, Maybe, same_as

# Passages of a document that are expected among the results of a query, at most.
PASSAGES_PER_DOCUMENT = 20


def read_pairs(path: str | Path) -> list[tuple[str, str]]:
    """Read (query_id, doc_id) of rows with names of fields, as judgements have, or of lines without a header.

    Lines are separated by a TAB or spaces; further fields are ignored.
    """
    if form := rows.form_of(path, QUERY_IDS, DOC_IDS):
        return [pair for _, pair in iter_records(path, rows.iter_rows(path, form), pair_of)]
    lines = ((row, line) for row, line in iter_lines(path) if line.strip())
    return [pair for _, pair in iter_records(path, lines, _pair)]


def _pair(line: str) -> tuple[str, str]:
    fields = line.split("\t") if "\t" in line else split_fields(line)
    if len(fields) < 2:
        raise BadLine("1 field", "query_id and doc_id", "fix the line")
    return writable_id("query_id", fields[0]), writable_id("doc_id", fields[1])


class ExclusionOptions(Aggregation):
    """Options of stages that search for many queries."""

    depth: int = same_as(Depth, "depth")
    ignore_own: bool = same_as(AnySplit, "ignore_own")
    exclude: Maybe[AnyFile] = None
    """Results to drop: lines of query_id and doc_id."""

    @cached_property
    def _pairs(self) -> list[tuple[str, str]]:
        return read_pairs(self.exclude) if self.exclude else []

    @cached_property
    def _spelled(self) -> Pairs:
        pairs = [(query_id, other) for query_id, doc_id in self._pairs for other in spellings_of(doc_id)]
        return Pairs(*(pa.array([pair[column] for pair in pairs], "string") for column in (0, 1)))

    @cached_property
    def most_excluded(self) -> int:
        """How many results of a query may be dropped."""
        most = int(self.ignore_own) + max(Counter(query_id for query_id, _ in self._pairs).values(), default=0)
        return most * (1 if self.aggregate == "none" else PASSAGES_PER_DOCUMENT)

    @property
    def reach(self) -> int:
        """How many results of a query to search for, so that enough are left."""
        return self.depth + self.most_excluded

    def without_excluded(self, run: Run) -> Run:
        """Drop results, and cut what is left."""
        if not self.most_excluded:
            return run
        pairs = Pairs(run.ids_of_queries(), documents_of(run.doc_ids, self.aggregate))
        kept = match(pairs, self._spelled) < 0
        if self.ignore_own:
            kept &= np.asarray(pc.not_equal(*pairs))
        return top(run.filter(kept), self.depth)
