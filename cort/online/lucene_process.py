"""BM25 in a process of its own, so that it and the dense ranker never wait for each other's Python.

In one process they hold Python's lock by turns: at 1,000 results both took half as long again as the slower one alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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
    connection: int = required("N", "file descriptor of the connection to the process that asks")


class LuceneProcess:
    """An index, open in another process; `lucene.Lucene` has the same methods."""

    def __init__(self, index: str | Path, threads: int, memory_mb: int) -> None:
        """Start the process and wait until the index is open.

        :param threads: queries of a batch that are searched at a time.
        :param memory_mb: heap of Java.
        :raises InputError: an index that is not whole, no Java.
        """
        self._connection, theirs = Pipe()
        options = Options(index=str(index), threads=threads, memory_mb=memory_mb, connection=theirs.fileno())
        others = filter(None, [os.environ.get("PYTHONPATH")])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, *to_words(options)],
                stdin=subprocess.DEVNULL,
                # What Java writes to standard output is no answer of the process that asks.
                stdout=2,
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *others])},
                # Signals of the terminal are for this process, which then closes the connection.
                start_new_session=True,
            )
        try:
            self.form = str(self._answer())
        except BaseException:
            self.close()
            raise

    def search(self, texts: Sequence[str], parameters: Parameters, depth: int) -> list[Ranking]:
        """Rank the passages for each text; the order and the scores are those of the stage `bm25`.

        :raises InputError: a query Lucene refuses; the process has ended.
        """
        with suppress(BrokenPipeError):
            self._connection.send((list(texts), parameters, depth))
        found: list[Ranking] = self._answer()
        return found

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.wait()

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, ConnectionError):
            found = f"its process ended with status {self._process.wait()}"
            raise input_error("BM25", found, "answers", "see what it said; open it again") from None
        if isinstance(answer, InputError):
            raise answer
        return answer


def serve(requests: Connection, options: Options) -> None:
    """Open the index and answer until the connection is closed; a mistake of a request is an answer too."""
    try:
        lucene = Lucene(options.index, options.threads, options.memory_mb)
    except InputError as error:
        requests.send(error)
        return
    with closing(lucene), suppress(EOFError, ConnectionError):
        requests.send(lucene.form)
        while True:
            texts, parameters, depth = requests.recv()
            try:
                requests.send(lucene.search(texts, parameters, depth))
            except InputError as error:
                requests.send(error)


def main() -> None:
    """Serve the process that started this one."""
    options = read_options(Options, cli.parser_of(Options).parse_args())
    with Connection(options.connection) as requests:
        serve(requests, options)


if __name__ == "__main__":
    main()
