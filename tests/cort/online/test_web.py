"""The live explorer's server: what it refuses, what it answers, and how requests queue for one thread."""

import asyncio
import json
import socket
import threading
from dataclasses import replace

import jsonschema
import pytest
from starlette.testclient import TestClient

from cort.online import web
from cort.online.line import Line, listening
from cort.online.web import PAGE
from cort.runtime.errors import InputError
from cort.systems.live import Reason
from tests.support.explorer import SYSTEMS, passage_id, rankings, score, text_of_passage, text_of_query
from tests.support.live import DEPTH, Scripted

PORT = 8765
HOST = f"127.0.0.1:{PORT}"


@pytest.fixture
def data(tmp_path):
    (tmp_path / "index.js").write_text('shard("index","AAAA");\n')
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


def app_of(data, searcher=None, line=None, token=""):
    return web.make_app(searcher or Scripted(), data, line or Line(), token)


@pytest.fixture
def client(data):
    return TestClient(app_of(data), f"http://{HOST}", raise_server_exceptions=False)


def error_of(response):
    """The one line of an error."""
    found = response.json()
    assert set(found) == {"error"}
    assert "\n" not in found["error"]
    return found["error"]


# Guards.


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1.evil.example", f"[::1]:{PORT}"])
def test_another_name_of_this_address_is_refused(client, host):
    for path in ("/", "/data/index.js", "/api/search?q=a&systems=bm25"):
        response = client.get(path, headers={"Host": host})
        assert response.status_code == 421
        assert "Host: found" in error_of(response)
    # Another port may be forwarded to this one.
    for name in (f"LOCALHOST:{PORT}", "127.0.0.1:80", "127.0.0.1"):
        assert client.get("/", headers={"Host": name}).status_code == 200


def test_without_the_token_of_the_address_nothing_is_answered(data):
    client = TestClient(app_of(data, None, None, "secret"), f"http://{HOST}")
    search = "api/search?q=a&systems=bm25"
    for path in ("/", f"/{search}", "/secret", f"/secre/{search}", f"/secrets/{search}", f"/%C3%A9/{search}"):
        response = client.get(path)
        assert (response.status_code, "token: found" in error_of(response)) == (403, True)
    for path in ("/secret/", "/secret/data/index.js", f"/secret/{search}"):
        assert client.get(path).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "TRACE", "BREW"])
def test_only_reading_is_allowed(client, method):
    for path in ("/", "/api/search?q=a&systems=bm25", "/nothing"):
        response = client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
        assert "expected GET or HEAD" in error_of(response)


def test_a_long_address_is_refused(client):
    response = client.get(f"/api/search?q={'a' * 16_000}")
    assert response.status_code == 414
    assert "address: found 16,0" in error_of(response)
    # The longest query, of characters that take the most bytes.
    assert client.get("/api/search", params={"systems": "bm25", "q": "\U0001f642" * 1_000}).status_code == 200


def test_pages_of_other_sites_get_no_answer(client):
    for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
        assert client.get("/api/search?q=a&systems=bm25", headers={"Sec-Fetch-Site": site}).status_code == status
        # A link to the page is allowed.
        assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/explorer.js", "/data/index.js", "/api/search?q=a&systems=bm25", "/api/why", "/nothing"]
)
def test_every_answer_has_the_security_headers(client, path):
    for method in ("GET", "POST"):
        headers = client.request(method, path, headers={"Origin": "https://evil.example"}).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["cache-control"] == (
            "no-store" if path[1:4] in ("", "api", "not") or method == "POST" else "no-cache"
        )
        assert not [name for name in headers if name.startswith("access-control")]


# Pages.


def test_the_page_may_ask_the_server(client):
    page = client.get("/").text
    assert page == client.get("/index.html").text
    assert f'<html lang="en" data-live="{DEPTH}">' in page
    assert "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'" in page
    for name in ("explorer.js", "explorer.css"):
        assert client.get(f"/{name}").content == (PAGE / name).read_bytes()
    assert client.get("/data/index.js").text.startswith("shard(")
    head = client.head("/")
    assert (head.status_code, head.content) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        *("/links.py", "/data/index.js", "/data/secret.txt", "/data/../secret.txt"),
        *("/data/..%2f..%2fetc/passwd", "/data/", "/%2e%2e/web.py"),
    ],
)
def test_no_other_file_is_served(client, data, path):
    # As if data had been deleted meanwhile.
    (data / "index.js").unlink()
    response = client.get(path)
    assert response.status_code == 404
    assert "no such page" in error_of(response)


def test_another_page_is_refused():
    with pytest.raises(InputError, match=r"index\.html: found 0 times <html"):
        web.live_page("<html>", 20)


# Answers.


@pytest.fixture
def schemas(client):
    document = client.get("/api/openapi.json").json()
    assert document["openapi"].startswith("3.1")

    def check(name, value):
        schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
        jsonschema.Draft202012Validator(schema).validate(value)
        return value

    return check


def test_each_system_answers_a_search(client, schemas):
    text = text_of_query(7)
    names = ["short", *(name for name in SYSTEMS if name != "short")]
    parameters = {"q": text, "systems": ",".join([*names, "short"]), "k": 5}
    found = schemas("Answers", client.get("/api/search", params=parameters).json())
    assert (found["query"], found["k"]) == (text, 5)
    assert [answer["system"] for answer in found["systems"]] == names
    for answer in found["systems"]:
        expected = enumerate(rankings(answer["system"])[7][:5], 1)
        assert answer["results"] == [
            {"rank": rank, "doc_id": f"p{doc}", "score": score(rank), "text": text_of_passage(doc)}
            for rank, doc in expected
        ]
        assert answer["milliseconds"] == {"bm25": 2.5, "merge": 0.25, "total": 2.75}
    found = client.get("/api/search", params={"q": "nothing", "systems": "bm25"}).json()
    assert (found["k"], found["systems"][0]["results"]) == (20, [])


def test_a_plus_in_the_name_of_a_system_need_not_be_escaped(data):
    client = TestClient(app_of(data, Named(["bm25", "cort+bm25"])), f"http://{HOST}")
    for names in ("cort+bm25,bm25", "cort%2Bbm25,bm25"):
        found = client.get(f"/api/search?q=a&systems={names}").json()
        assert [answer["system"] for answer in found["systems"]] == ["cort+bm25", "bm25"]


class Named(Scripted):
    """Answers as BM25 by any name."""

    def search(self, system, text, depth):
        return replace(super().search("bm25", text, depth), system=system)


def test_documents_are_found_by_their_best_passage(data, schemas):
    client = TestClient(app_of(data, Scripted(aggregate="max")), f"http://{HOST}")
    parameters = {"q": text_of_query(7), "systems": "bm25", "k": 5}
    [found] = schemas("Answers", client.get("/api/search", params=parameters).json())["systems"]
    ranking, documents = rankings("bm25")[7][:DEPTH], {}
    for rank, passage in enumerate(ranking, 1):
        documents.setdefault(passage // 4, []).append((rank, passage))
    expected = [
        {
            "rank": place,
            "doc_id": f"d{document}",
            "score": score(passages[0][0]),
            "passage": passage_id(passages[0][1], documents=True),
            "about": ", ".join(f"{passage % 4} (rank {rank})" for rank, passage in passages),
            "text": text_of_passage(passages[0][1]),
        }
        for place, (document, passages) in enumerate(documents.items(), 1)
    ]
    assert found["results"] == expected[:5]
    assert any("," in one["about"] for one in expected)
    assert client.get("/api/search", params={"q": "nothing", "systems": "bm25"}).json()["systems"][0]["results"] == []


def test_a_result_is_explained(client, schemas, monkeypatch):
    def explain(searcher, *given):
        part = Reason("bm25", "bm25", 1, 2.5, "BM25", ["term", "adds"], [["city", 2.5]], True)
        return Reason(given[0], "linear", None, None, " ".join(given), ["part", "rank"], [["bm25", None]], parts=[part])

    monkeypatch.setattr(web, "explain", explain)
    response = client.get("/api/why", params={"q": "a b", "system": "short", "doc_id": "p1"})
    found = schemas("Explanation", response.json())
    assert (found["about"], found["query"], found["doc_id"]) == ("short a b p1", "a b", "p1")
    assert found["parts"][0]["rows"] == [["city", 2.5]]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("search", "q: found nothing, expected Field required"),
        ("search?q=+&systems=bm25", "query: found no word"),
        ("search?q=a", "systems: found nothing"),
        ("search?q=a&systems=bm25,nope", "systems: found 'nope', expected one of the systems"),
        (f"search?q={'a' * 1001}&systems=bm25", "expected String should have at most 1000 characters"),
        *((f"search?q=a&systems=bm25&k={k}", f"k: found '{k}', expected ") for k in (0, "x", "-1", "1e3", "9" * 50)),
        (f"search?q=a&systems=bm25&k={DEPTH + 1}", f"k: found {DEPTH + 1}, expected a number from 1 to {DEPTH}"),
        ("search?q=a&systems=bm25&depth=3", "depth: found '3', expected no such parameter"),
        ("search?q=many+words&systems=bm25", "query: found too many words"),
        ("why?q=a&system=bm25,short&doc_id=p1", "system: found 2 names, expected one of the systems that are open"),
        ("why?q=a&system=x&doc_id=p1", "system: found 'x'"),
    ],
)
def test_wrong_parameters_are_refused(client, path, words):
    response = client.get(f"/api/{path}")
    assert response.status_code == 400
    assert words in error_of(response)


def test_a_bug_is_logged_and_the_next_request_answered(client, caplog):
    response = client.get("/api/search?q=defect&systems=bm25")
    assert response.status_code == 500
    assert "ZeroDivisionError" not in error_of(response)
    assert "ZeroDivisionError" in caplog.text
    assert client.get("/api/search?q=a&systems=bm25").status_code == 200


# The line of requests.


async def ask(app, query, receive=None):
    """Send a request as a server does; return status and answer."""
    sent, done = [], asyncio.Event()

    async def waiting():
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    path, parameters = "/api/search", f"q={query}&systems=bm25,short&k=20"
    headers = [(b"host", HOST.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": parameters.encode()}
    await app({**scope, "headers": headers, "root_path": ""}, receive or waiting, send)
    done.set()
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_too_many_waiting_requests_are_refused(data):
    app = app_of(data, Scripted(seconds=0.01), Line(most=5))

    async def together():
        return await asyncio.gather(*(ask(app, f"q{number}") for number in range(20)))

    responses = asyncio.run(together())
    assert [status for status, _ in responses].count(200) == 5
    assert [status for status, _ in responses].count(503) == 15
    # The queue is empty again.
    assert asyncio.run(ask(app, "later"))[0] == 200


def test_work_of_a_client_that_has_disconnected_is_not_begun(data):
    searcher, line = Scripted(), Line()
    app, free = app_of(data, searcher, line), threading.Event()

    async def leave():
        return {"type": "http.disconnect"}

    async def work():
        line.submit(free.wait)
        left = await ask(app, "left", leave)
        stays = asyncio.ensure_future(ask(app, "stays"))
        await asyncio.sleep(0.05)
        free.set()
        return left, await stays

    left, stays = asyncio.run(work())
    assert left == (499, {"error": "the client has disconnected"})
    assert stays[0] == 200
    assert {text for _, text, _ in searcher.searched} == {"stays"}


def test_the_queue_reports_work_that_cannot_be_stopped():
    line, free = Line(), threading.Event()
    waiting = line.submit(free.wait)
    behind = line.submit(lambda: None)
    assert not line.end()
    free.set()
    assert waiting.result(10)
    assert behind.cancelled()
    assert line.end()


def test_a_port_is_local_and_belongs_to_one_program():
    with listening(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(InputError, match=rf"--port: found {port} that another program uses"), listening(port):
            pass
    with listening(port):
        pass
    with pytest.raises(InputError, match="--port: found 65536, expected 65535 at most"), listening(65_536):
        pass


def test_connections_send_data_at_once():
    # asyncio sets TCP_NODELAY if the socket names its protocol; otherwise the second part of an answer waits for 40 ms.
    with listening(0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
