"""A searcher whose answers are the runs of the explorer's small experiment, and a server of its page."""

import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import uvicorn

from cort.formats.records import Ranking
from cort.online.line import Line
from cort.online.searcher import LiveAnswer, Result, Searcher, check_query
from cort.online.web import make_app
from cort.runtime.errors import InputError
from tests.support.explorer import (
    QUERIES_COUNT,
    SYSTEMS,
    number_of_passage,
    passage_id,
    rankings,
    score,
    text_of_passage,
    text_of_query,
)

DEPTH = 25


def number_of(text):
    """Return the number of a query; another text gets the number of one of them."""
    texts = [text_of_query(number) for number in range(QUERIES_COUNT)]
    return texts.index(text) if text in texts else 3 + len(text) % 40


class Scripted:
    """Answers with the runs of the experiment, one request at a time; some texts are special."""

    def __init__(self, systems=SYSTEMS, seconds=0.0, aggregate="none"):
        self.systems, self.seconds, self.at_work = list(systems), seconds, 0
        #: searches wait for this
        self.free = threading.Event()
        self.free.set()
        self.depth, self.aggregate = DEPTH, aggregate
        self.passages = SimpleNamespace(texts=lambda doc_ids: [*map(text_of_passage, map(number_of_passage, doc_ids))])
        self.searched = []

    answer = Searcher.answer

    def search(self, system, text, depth):
        self.at_work += 1
        assert self.at_work == 1, "two threads"
        self.searched.append((system, text, depth))
        self.free.wait(60)
        time.sleep(self.seconds)
        self.at_work -= 1
        check_query(text)
        if "many words" in text:
            raise InputError("query: found too many words, expected 1,024 different words at most; shorten it")
        if "defect" in text:
            raise ZeroDivisionError
        passages = [] if "nothing" in text else rankings(system).get(number_of(text), [])[:depth]
        results = [Result(f"p{passage}", score(rank), rank) for rank, passage in enumerate(passages, 1)]
        return LiveAnswer(system, results, {"bm25": 2.5, "merge": 0.25, "total": 2.75})

    def search_batch(self, system, texts, depth):
        """Rank passages of documents."""
        answer = self.search(system, texts[0], depth)
        doc_ids = [passage_id(number_of_passage(one.doc_id), documents=True) for one in answer.results]
        scores = np.array([one.score for one in answer.results])
        return [Ranking("", doc_ids, scores)], answer.milliseconds


@contextmanager
def served(searcher, data, judging=None):
    """Serve the page with the data of a folder; yields the address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        app = make_app(searcher, data, Line(), "token", judging)
        server = uvicorn.Server(uvicorn.Config(app, http="h11", lifespan="off", log_config=None, log_level="critical"))
        thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{port}/token/"
        finally:
            server.should_exit = server.force_exit = True
            thread.join(10)
