"""The explorer's small experiment as a searcher that finds what its runs have, and a server of its page."""

import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import uvicorn

from cort.explore import PAGE
from cort.online.searcher import Answer, Result, check_query
from cort.online.serving import Line
from cort.online.web import Site, make_app
from cort.system.errors import InputError
from tests.support.explorer import QUERIES_COUNT, SYSTEMS, rankings, score, text_of_passage, text_of_query

DEPTH = 25


def number_of(text):
    """Number of a query, or of the one that stands for a text that is no query."""
    texts = [text_of_query(one) for one in range(QUERIES_COUNT)]
    return texts.index(text) if text in texts else 3 + len(text) % 40


class Scripted:
    """Finds the runs of the experiment, at one request a time; some texts are special."""

    def __init__(self, systems=SYSTEMS, seconds=0.0):
        self.systems, self.seconds, self.at_work = list(systems), seconds, 0
        self.manifest = SimpleNamespace(depth=DEPTH)
        self.passages = SimpleNamespace(texts=lambda ids: [text_of_passage(int(one[1:])) for one in ids])
        self.asked = []

    def search(self, system, text, depth):
        self.at_work += 1
        assert self.at_work == 1, "two threads"
        self.asked.append((system, text, depth))
        time.sleep(self.seconds)
        self.at_work -= 1
        check_query(text)
        if "many words" in text:
            raise InputError("query: found too many words, expected 1,024 different words at most; shorten it")
        if "defect" in text:
            raise ZeroDivisionError
        found = [] if "nothing" in text else rankings(system).get(number_of(text), [])[:depth]
        results = [Result(f"p{one}", score(rank), rank) for rank, one in enumerate(found, 1)]
        return Answer(system, results, {"bm25": 2.5, "merge": 0.25, "total": 2.75})


@contextmanager
def served(searcher, data):
    """Serve the page with the data of a folder; the address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        app = make_app(searcher, Site(PAGE, data), Line(), port)
        server = uvicorn.Server(uvicorn.Config(app, http="h11", lifespan="off", log_config=None, log_level="critical"))
        thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)
