"""A person's judgements of the results of a split: which candidates there are, and the file that gets the judgements.

The candidates of a query are the first results of the stored runs of all systems; documents, if the experiment
aggregates passages. A judgement is a line of `cort.formats.judgements`, and on disk before it is answered; candidates
of a query with the same text are judged at once. Nothing here tells which system found a candidate, or at which rank.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any

from filelock import Timeout

from cort.config import paths
from cort.config.experiment import Experiment
from cort.formats.judgements import Judgement, parse_judgement, read_judged
from cort.formats.runs import read_run
from cort.formats.tables import PASSAGES, iter_batches, read_queries
from cort.online.passages import Passages
from cort.retrieval.documents import documents_of, group_passages
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.locks import acquire

log = logging.getLogger(__name__)

#: characters of a text in a judgement
QUOTED = 300
FIX = "see /api/openapi.json"


class Judging:
    """The candidates of the queries of a split, and the file of judgements, which is locked. Not thread-safe.

    :ivar queries: id to text.
    :ivar pools: id of a query to ids of candidates, each with the id of the passage that is shown.
    :ivar grades: of pairs of a query and a candidate, in the order of judging.
    """

    def __init__(self, results: Experiment, split: str, path: Path, depth: int, then: tuple[str, str]) -> None:
        """Pool the first `depth` results of all systems, and read the file, which need not exist.

        :param then: what to do with the judgements, and its command.

        :raises InputError: if the file has another name or a bad line, or another program writes it.
        """
        if path.suffix != ".jsonl":
            raise input_error("--judgements", shorten(path.name), "a name that ends in .jsonl", "name another file")
        self.then = then
        queries, passages = results.at(paths.QUERIES, split=split), results.at(paths.PASSAGES)
        runs = [results.run(split, name) for name in results.on_split(split)]
        self.queries, self.pools = read_queries(queries), dict[str, dict[str, str]]()
        how = results.collection.aggregate
        for run, shown, _ in (group_passages(read_run(run), how) for run in runs):
            for query_id, (start, end) in zip(run.query_ids, pairwise(run.offsets.tolist()), strict=True):
                rows = slice(start, min(end, start + depth))
                found = dict(zip(run.doc_ids[rows].to_pylist(), shown[rows].to_pylist(), strict=True))
                self.pools[query_id] = found | self.pools.get(query_id, {})
        self._lock = _locked(path)
        self._file = path.open("a+b", buffering=0)
        _mend(path, self._file)
        grouping = None if how == "none" else partial(documents_of, how=how)
        judged, _ = read_judged(path, iter_batches(passages, PASSAGES), grouping)
        self.grades = {one[:2]: one.relevance for _, one in judged if one.doc_id in self.pools.get(one.query_id, {})}

    def state(self) -> dict[str, Any]:
        """List all queries with candidates, in an order without ranks; judgements in theirs; what is next."""
        queries = [
            {
                "query_id": query_id,
                "query": text,
                "candidates": sorted(self.pools[query_id], key=lambda doc_id: sha256(doc_id.encode()).digest()),
            }
            for query_id, text in self.queries.items()
            if query_id in self.pools
        ]
        judgements = [[*pair, grade] for pair, grade in self.grades.items()]
        return {"queries": queries, "judgements": judgements, "next": self.then}

    def texts(self, query_id: str, passages: Passages) -> dict[str, str]:
        """Return the texts of the candidates of a query."""
        if query_id not in self.pools:
            raise input_error("query_id", shorten(query_id), "a query with candidates", FIX)
        pool = self.pools[query_id]
        return dict(zip(pool, passages.texts([*pool.values()]), strict=True))

    def judge(self, one: Judgement, passages: Passages) -> None:
        """Write a judgement of all candidates with the text of one, or withdraw it.

        :raises InputError: for what is no candidate, or has another text, or was not judged.
        :raises OSError: if it cannot be written; the file is then as before.
        """
        texts = self.texts(one.query_id, passages)
        text = texts.get(one.doc_id)
        if text is None or not text.startswith(one.text):
            raise input_error("doc_id", shorten(one.doc_id), "a candidate of the query, with this text", FIX)
        same = [(one.query_id, doc_id) for doc_id, other in texts.items() if other == text]
        if one.relevance is None and not (same := [pair for pair in same if pair in self.grades]):
            raise input_error("relevance", "null", "a grade, as there is none to withdraw", FIX)
        lines = [asdict(replace(one, doc_id=doc_id, text=text[:QUOTED])) for _, doc_id in same]
        self._append("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
        self.grades = {pair: grade for pair, grade in self.grades.items() if pair not in same}
        if one.relevance is not None:
            self.grades |= dict.fromkeys(same, one.relevance)

    def _append(self, line: bytes) -> None:
        end = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise


def _locked(path: Path) -> object:
    try:
        return acquire(path.with_name(f"{path.name}.lock"))
    except Timeout:
        found, expected = "a file that another program writes", "one for this program alone"
        raise input_error(path, found, expected, "end the other explorer, or name another file") from None


def _mend(path: Path, file: FileIO) -> None:
    """Drop a last line that was not written completely, or end it."""
    content = path.read_bytes()
    if begun := content.rpartition(b"\n")[2]:
        try:
            parse_judgement(path, begun)
            file.write(b"\n")
        except InputError:
            log.warning("%s: dropped the last line, of which only %d bytes were written", path, len(begun))
            file.truncate(len(content) - len(begun))
