"""Asking a model: each text once, whatever ends a process, within limits; errors in one line that tell no secrets."""

import errno
import fcntl
import os
import sqlite3
import ssl
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import make_dataclass
from itertools import count
from unittest.mock import Mock

import pytest

from cort.models import service
from cort.models.endpoint import ask, refuse_nonsense
from cort.runtime.errors import InputError
from tests.support.common import logged, wait_until
from tests.support.errors import line_of
from tests.support.model_server import BROKEN, BUSY, FOUND, configured_server, model_server
from tests.support.processes import Python

FIELDS = {"model": "small", "max_requests": 1000, "requests_per_minute": None, "at_once": 4}
KEY = "sk-secret-of-the-tests"


def limits(**changes):
    return make_dataclass("Limits", FIELDS)(**{**FIELDS, **changes})


@pytest.fixture
def server():
    with configured_server(KEY, answer=lambda prompt: f"answer to {prompt}") as server:
        yield server


def texts(number, name="text"):
    return [f"{name} {place}" for place in range(number)]


def kept(cache):
    if not os.path.exists(cache):
        return 0
    with sqlite3.connect(cache) as answers:
        if not answers.execute("SELECT name FROM sqlite_master").fetchone():
            return 0
        return answers.execute("SELECT count(*) FROM answers").fetchone()[0]


def test_each_different_text_is_asked_once(server, cache, caplog):
    caplog.set_level("INFO")
    answers = ask("Say: ", ["b", "a", "b"], limits(), cache)
    assert answers == ["answer to Say: b", "answer to Say: a", "answer to Say: b"]
    assert "2 requests needed, 0 answers cached; limit: 1000 requests" in logged(caplog)
    assert ask("Say: ", ["a", "c", "b"], limits(), cache)[1] == "answer to Say: c"
    assert "1 requests needed, 2 answers cached; limit: 1000 requests" in logged(caplog)
    assert server.answered == Counter({"Say: a": 1, "Say: b": 1, "Say: c": 1})
    _, headers, body = server.attempts[0]
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert (body["model"], body["temperature"]) == ("small", 0)


def test_another_model_or_prompt_is_asked_again_also_without_a_key(server, cache, monkeypatch):
    monkeypatch.delenv(service.KEY)
    for prompt, model in (("a", "small"), ("a", "large"), ("b", "small"), ("a", "small")):
        ask(prompt, ["text"], limits(model=model), cache)
    assert [body["model"] for _, _, body in server.attempts] == ["small", "large", "small"]
    assert "Authorization" not in server.attempts[0][1]


@pytest.mark.parametrize(
    ("said", "expected"), [("<think>3? no\n</think>\n 2\n", "2"), (None, ""), ("a\0b\ud800", "a b?"), ("x\ny", "x y")]
)
def test_answers_are_cleaned(server, cache, said, expected):
    server.answer = lambda prompt: said
    for _ in range(2):
        assert ask("", ["text"], limits(), cache) == [expected]
    assert len(server.attempts) == 1


def test_more_requests_than_allowed_are_refused_before_the_first(server, cache, caplog):
    caplog.set_level("INFO")
    ask("", texts(2), limits(max_requests=2), cache)
    logged(caplog)
    found = "endpoint.max_requests: found 3 requests needed, expected at most 2; raise it, or ask for less"
    with pytest.raises(InputError, match=found):
        ask("", texts(5), limits(max_requests=2), cache)
    assert "3 requests needed, 2 answers cached; limit: 2 requests" in logged(caplog)
    assert len(server.attempts) == 2


def test_as_many_at_once_as_allowed(server, cache):
    server.pause = 0.05
    ask("", texts(20), limits(at_once=3), cache)
    assert server.busiest == 3


def test_requests_keep_their_distance_also_when_they_are_repeated(server, cache):
    server.steps = [200, BUSY, 200, BROKEN]
    start = time.monotonic()
    ask("", texts(8), limits(requests_per_minute=600, at_once=8), cache)
    times = [at - start for at, _, _ in server.attempts]
    assert len(times) == 10
    # A tenth of a second for each; they may come later, but never earlier.
    assert all(at > number / 10 - 0.01 for number, at in enumerate(times, 1))


def test_a_busy_server_is_asked_when_it_says(server, cache):
    server.steps, server.retry_after = [BUSY], 1.5
    assert ask("", ["text"], limits(), cache) == ["answer to text"]
    (first, _, _), (second, _, _) = server.attempts
    assert second - first > 1.4


def test_what_passes_is_tried_again(server, cache):
    server.steps = [BROKEN, "drop", 200, "drop", BROKEN]
    ask("", texts(10), limits(), cache)
    assert server.answered == Counter(texts(10))
    assert len(server.attempts) == 14


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (401, "status 401 Unauthorized"),
        (FOUND, "status 302 Found"),
        (BROKEN, "status 500 Internal Server Error"),
        (BUSY, "status 429 Too Many Requests"),
        ("drop", "no connection"),
        ("html", "no answer of a model"),
        ("json", "no answer of a model"),
    ],
)
def test_an_error_that_stays_is_one_line_and_answers_are_kept(server, cache, monkeypatch, caplog, step, found):
    caplog.set_level("INFO")
    monkeypatch.setattr(service, "RETRIES", 1)
    server.steps = [200, 200, *[step] * 40]
    line = line_of(ask, "", texts(10), limits(at_once=1), cache)
    assert line.startswith(f"endpoint: found {found}")
    assert "expected an answer" in line
    for text in (line, *logged(caplog), *logged(caplog, "WARNING")):
        assert KEY not in text
        assert "127.0.0.1" not in text
    assert kept(cache) == 2
    # No redirect is followed, and an error that cannot pass is not tried again.
    assert len(server.attempts) == (4 if step in (BROKEN, BUSY, "drop") else 3)
    server.steps = []
    assert ask("", texts(10), limits(), cache)[9] == "answer to text 9"
    assert server.answered == Counter(texts(10))


def test_requests_under_way_at_an_error_are_kept(server, cache):
    server.steps, server.pause = [401], 0.2
    with pytest.raises(InputError, match="401"):
        ask("", texts(50), limits(at_once=4), cache)
    assert 3 <= kept(cache) == sum(server.answered.values()) < 50


def test_a_server_that_is_silent_or_down(cache, monkeypatch):
    monkeypatch.setattr(service, "RETRIES", 0)
    monkeypatch.setattr(service, "PATIENCE", 0.3)
    with model_server() as server:
        monkeypatch.setenv(service.URL, server.url)
        server.most = 0
        with pytest.raises(InputError, match=r"endpoint: found no answer in 0\.3 s"):
            ask("", ["text"], limits(), cache)
    with pytest.raises(InputError, match="endpoint: found no connection"):
        ask("", ["text"], limits(), cache)


def test_an_invalid_certificate(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(service, "RETRIES", 0)
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {certificate} -days 2 -subj /CN=localhost"
    subprocess.run(words.split(), check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with model_server(context) as server:
        monkeypatch.setenv(service.URL, server.url)
        with pytest.raises(InputError, match="endpoint: found an invalid certificate, expected an answer"):
            ask("", ["text"], limits(), cache)
    assert not server.attempts


@pytest.mark.parametrize(
    ("url", "found"), [(None, "nothing"), ("localhost:8080", "no address"), ("http://host:port", "no address")]
)
def test_no_address(cache, monkeypatch, url, found):
    monkeypatch.delenv(service.URL, raising=False)
    if url:
        monkeypatch.setenv(service.URL, url)
    with pytest.raises(InputError, match=f"^OPENAI_BASE_URL: found {found}, "):
        ask("", ["text"], limits(), cache)


@pytest.mark.parametrize("key", ["sk-sécret", "sk-secret\nx"])
def test_a_broken_key_is_not_shown(server, cache, monkeypatch, key):
    monkeypatch.setattr(service, "RETRIES", 0)
    monkeypatch.setenv(service.KEY, key)
    assert "cret" not in line_of(ask, "", ["text"], limits(), cache)


def test_a_cache_that_is_none(server, cache, tmp_path):
    ask("", ["text"], limits(), cache)
    with open(cache, "wb") as file:
        file.write(b"something else" * 1000)
    with pytest.raises(InputError, match=r"answers\.sqlite: found .*, expected a file of answers"):
        ask("", ["text"], limits(), cache)


def test_half_of_the_answers_may_be_nonsense():
    refuse_nonsense(0, 0, "a grade")
    refuse_nonsense(5, 10, "a grade")
    with pytest.raises(InputError, match=r"endpoint\.model: found 6 of 10 answers without a grade, expected a grade"):
        refuse_nonsense(6, 10, "a grade")


PROGRAM = """
import sys
import time
from tests.cort.models.test_endpoint import ask, limits, texts
print(len(ask("", texts(int(sys.argv[1])), limits(at_once=int(sys.argv[2])), sys.argv[3])))
"""


def start(cache, number, at_once=4):
    return Python("-c", PROGRAM, number, at_once, cache, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_a_killed_process_asks_nothing_again(server, cache):
    server.most = 20
    with start(cache, 50):
        wait_until(lambda: kept(cache) == 20, "20 answers", 60)
    # What it still wanted was never answered.
    server.most = float("inf")
    assert len(ask("", texts(50), limits(), cache)) == 50
    assert server.answered == Counter(texts(50))


def test_processes_at_the_same_time_ask_once_and_keep_the_limits(server, cache):
    server.pause = 0.05
    processes = [start(cache, 40, at_once=2) for _ in range(2)]
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["40"] * 2
    assert server.answered == Counter(texts(40))
    assert server.busiest == 2


def test_where_files_cannot_be_locked_the_first_answer_is_kept(cache, monkeypatch):
    """Two ask about the same text at the same time."""
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOLCK, "No locks available")))
    both, numbers = threading.Barrier(2), count()

    def answer(prompt):
        both.wait(60)
        return f"answer {next(numbers)}"

    with configured_server(KEY, answer=answer) as server, ThreadPoolExecutor() as pool:
        asked = [pool.submit(ask, "", ["text"], limits(max_requests=1), cache) for _ in range(2)]
        one, other = (future.result() for future in asked)
    assert one == other
    assert server.answered == {"text": 2}
