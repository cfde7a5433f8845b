"""BM25 in a process of its own, so that it and the dense ranker never wait for each other's Python.

In one process they hold Python's lock by turns: at 1,000 results both took half as long again as the slower one alone.
Requests are lines of JSON; an answer is a line of JSON, and behind it the ids as lines and the scores as doubles.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cort.formats.records import Ranking
from cort.online.lucene import Lucene
from cort.retrieval.bm25 import Parameters
from cort.retrieval.options import JavaOptions
from cort.system import cli
from cort.system.errors import InputError, input_error
from cort.system.options import read_options, required, to_words

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Options(JavaOptions):
    """Options of the process."""

    index: str = required("FOLDER", "what `bm25_index` wrote")


class LuceneProcess:
    """An index, open in another process; `lucene.Lucene` has the same methods."""

    def __init__(self, index: str | Path, threads: int, memory_mb: int) -> None:
        """Start the process and wait until the index is open.

        :param threads: queries of a batch that are searched at a time.
        :param memory_mb: heap of Java.
        :raises InputError: an index that is not whole, no Java.
        """
        others = filter(None, [os.environ.get("PYTHONPATH")])
        options = to_words(Options(index=str(index), threads=threads, memory_mb=memory_mb))
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])},
            # Signals of the terminal are for this process, which then closes the other one's input.
            start_new_session=True,
        )
        try:
            self.form = str(self._answer()["form"])
        except BaseException:
            self.close()
            raise

    def search(self, texts: Sequence[str], parameters: Parameters, depth: int) -> list[Ranking]:
        """Rank the passages for each text; the order and the scores are those of the stage `bm25`.

        :raises InputError: a query Lucene refuses; the process has ended.
        """
        request = {"texts": list(texts), "parameters": parameters, "depth": depth}
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._answer()
        counts = answer["counts"]
        doc_ids = self._read(answer["bytes"]).decode().split("\n")
        scores = np.frombuffer(self._read(8 * sum(counts)), dtype=np.float64)
        ends = np.cumsum(counts).tolist()
        bounds = zip([0, *ends[:-1]], ends, strict=True)
        return [Ranking("", doc_ids[start:end], scores[start:end]) for start, end in bounds]

    def close(self) -> None:
        """End the process."""
        with suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()
        self._process.wait()

    @property
    def _requests(self) -> IO[bytes]:
        return _there(self._process.stdin)

    @property
    def _answers(self) -> IO[bytes]:
        return _there(self._process.stdout)

    def _answer(self) -> dict[str, Any]:
        line = self._answers.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise InputError(answer["error"])
        return answer

    def _read(self, count: int) -> bytes:
        found = self._answers.read(count)
        if len(found) < count:
            raise self._ended()
        return found

    def _ended(self) -> InputError:
        status = self._process.wait()
        return input_error(
            "BM25", f"its process ended with status {status}", "answers", "see what it said; open it again"
        )


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise TypeError("the process has no pipe")
    return pipe


def serve(requests: IO[bytes], answers: IO[bytes], options: Options) -> None:
    """Open the index and answer until the input ends; a mistake of a request is an answer too."""
    lucene: Lucene | None = None
    try:
        lucene = Lucene(options.index, options.threads, options.memory_mb)
        _send(answers, {"form": lucene.form})
        for line in requests:
            request = json.loads(line)
            try:
                found = lucene.search(request["texts"], Parameters(*request["parameters"]), request["depth"])
            except InputError as error:
                _send(answers, {"error": str(error)})
                continue
            doc_ids = "\n".join(doc_id for ranking in found for doc_id in ranking.doc_ids).encode()
            scores = np.concatenate([ranking.scores for ranking in found]).astype(np.float64)
            counts = [len(ranking.doc_ids) for ranking in found]
            _send(answers, {"counts": counts, "bytes": len(doc_ids)}, doc_ids, scores.tobytes())
    except InputError as error:
        _send(answers, {"error": str(error)})
    finally:
        if lucene is not None:
            lucene.close()


def _send(answers: IO[bytes], head: dict[str, Any], *more: bytes) -> None:
    answers.write(b"".join([json.dumps(head).encode(), b"\n", *more]))
    answers.flush()


def main() -> None:
    """Serve the process that started this one, over standard input and output."""
    options = read_options(Options, cli.parser_of(Options).parse_args())
    # Who asked may be gone; what Java writes to standard output is no answer.
    with suppress(BrokenPipeError), open(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, answers, options)


if __name__ == "__main__":
    main()
