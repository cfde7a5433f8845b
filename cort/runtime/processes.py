"""Work in several processes, with results in the order of the items."""

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from cort.runtime.errors import input_error

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_order(function: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result]:
    """Yield the result of each item; a few items per process are worked on in advance.

    A single item, or all with one process, are worked on here.
    """
    iterator = iter(items)
    first = list(islice(iterator, 2))
    if processes == 1 or len(first) < 2:
        yield from map(function, chain(first, iterator))
        return
    context = multiprocessing.get_context("spawn")
    # The main process ends the others after Ctrl-C.
    pool = ProcessPoolExecutor(processes, context, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    try:
        started = deque(pool.submit(function, item) for item in chain(first, islice(iterator, 2 * processes)))
        while started:
            yield started.popleft().result()
            started.extend(pool.submit(function, item) for item in islice(iterator, 1))
    except BrokenProcessPool as error:
        found = "a process that died"
        raise input_error(
            "--threads", found, "processes that end", "give the job more memory, or fewer threads"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
