"""Where files cannot be locked, two that ask about the same text at the same time both get the answer kept first."""

import errno
import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from unittest.mock import Mock

from cort.models import endpoint, service
from tests.support.model_server import model_server


def test_the_first_answer_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    both, numbers = threading.Barrier(2), count()

    def answer(prompt):
        both.wait(60)
        return f"answer {next(numbers)}"

    with model_server() as server, ThreadPoolExecutor() as pool:
        server.answer = answer
        monkeypatch.setenv(service.URL, server.url)
        limits = SimpleNamespace(model="small", max_requests=1, requests_per_minute=None, at_once=1)
        asked = [pool.submit(endpoint.ask, "", ["text"], limits, str(tmp_path / "answers")) for _ in range(2)]
        one, other = (future.result() for future in asked)
    assert one == other
    assert server.answered == {"text": 2}
