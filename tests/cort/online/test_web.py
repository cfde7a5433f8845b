"""The live explorer's server: what it refuses, what it answers, and that requests wait for one thread."""

import asyncio
import json
import resource
import socket
import threading
from functools import partial

import jsonschema
import pytest
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from cort.explore import PAGE
from cort.online import web
from cort.online.serving import Line, listening
from cort.online.why import Reason
from cort.system.errors import InputError
from tests.support.explorer import SYSTEMS, rankings, score, text_of_passage, text_of_query
from tests.support.live import DEPTH, Scripted

PORT = 8765
HOST = f"127.0.0.1:{PORT}"


@pytest.fixture
def data(tmp_path):
    (tmp_path / "index.js").write_text('shard("index","AAAA");\n')
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


def app_of(data, searcher=None, line=None):
    return web.make_app(searcher or Scripted(), web.Site(PAGE, data), line or Line(), PORT)


@pytest.fixture
def client(data):
    return TestClient(app_of(data), f"http://{HOST}", raise_server_exceptions=False)


def error_of(response):
    """The one line of a refusal."""
    found = response.json()
    assert set(found) == {"error"}
    assert "\n" not in found["error"]
    return found["error"]


# Guards.


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:80", f"[::1]:{PORT}"])
def test_a_name_that_points_here_is_refused(client, host):
    for path in ("/", "/data/index.js", "/api/search?q=a&systems=bm25"):
        response = client.get(path, headers={"Host": host})
        assert response.status_code == 421
        assert "Host: found" in error_of(response)


def test_both_names_of_this_machine_are_fine(client):
    assert client.get("/", headers={"Host": f"LOCALHOST:{PORT}"}).status_code == 200
    assert client.get("/").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_only_reading_is_allowed(client, method):
    for path in ("/", "/api/search?q=a&systems=bm25", "/nothing"):
        response = client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
        assert "expected GET or HEAD" in error_of(response)


def test_a_long_address_is_refused(client, data):
    status, found = asyncio.run(ask(app_of(data), "a" * 1_000_000))
    assert (status, set(found)) == (414, {"error"})
    assert "expected 16,000 at most; shorten the query" in found["error"]
    # The longest query, in letters that take most.
    assert client.get("/api/search", params={"systems": "bm25", "q": "\U0001f642" * 1_000}).status_code == 200


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_pages_of_other_sites_get_no_answer(client, site, status):
    response = client.get("/api/search?q=a&systems=bm25", headers={"Sec-Fetch-Site": site})
    assert response.status_code == status
    # A link to the page is fine.
    assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/explorer.js", "/data/index.js", "/api/search?q=a&systems=bm25", "/api/why", "/nothing"]
)
def test_every_answer_has_the_headers(client, path):
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


def test_the_page_is_that_of_the_folder_and_may_ask_the_server(client):
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
    ["/links.py", "/data/secret.txt", "/data/../secret.txt", "/data/..%2f..%2fetc/passwd", "/data/", "/%2e%2e/web.py"],
)
def test_no_other_file_is_served(client, path):
    response = client.get(path)
    assert response.status_code == 404
    assert "no such page" in error_of(response) or error_of(response) == "Not Found"


def test_data_deleted_meanwhile_are_no_page(client, data):
    (data / "index.js").unlink()
    response = client.get("/data/index.js")
    assert response.status_code == 404
    assert "no such page" in error_of(response)


def test_a_page_of_another_form_is_refused():
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


def test_a_search_is_answered_by_each_system_in_turn(client, schemas):
    text = text_of_query(7)
    found = schemas(
        "Answers", client.get("/api/search", params={"q": text, "systems": "short,bm25,short", "k": 5}).json()
    )
    assert (found["query"], found["k"]) == (text, 5)
    assert [one["system"] for one in found["systems"]] == ["short", "bm25"]
    for one in found["systems"]:
        expected = enumerate(rankings(one["system"])[7][:5], 1)
        assert one["results"] == [
            {"rank": rank, "doc_id": f"p{doc}", "score": score(rank), "text": text_of_passage(doc)}
            for rank, doc in expected
        ]
        assert one["milliseconds"] == {"bm25": 2.5, "merge": 0.25, "total": 2.75}
    found = client.get("/api/search", params={"q": "nothing", "systems": "bm25"}).json()
    assert (found["k"], found["systems"][0]["results"]) == (20, [])


def test_a_result_is_explained(client, schemas, monkeypatch):
    def explain(searcher, *asked):
        part = Reason("bm25", "bm25", 1, 2.5, "BM25", ["term", "adds"], [["city", 2.5]], True)
        return Reason(asked[0], "linear", None, None, " ".join(asked), ["part", "rank"], [["bm25", None]], parts=[part])

    monkeypatch.setattr(web, "explain", explain)
    found = schemas(
        "Explanation", client.get("/api/why", params={"q": "a b", "system": "short", "doc_id": "p1"}).json()
    )
    assert (found["about"], found["query"], found["doc_id"]) == ("short a b p1", "a b", "p1")
    assert found["parts"][0]["rows"] == [["city", 2.5]]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("search", "query: found no word"),
        ("search?q=+&systems=bm25", "query: found no word"),
        ("search?q=a", "systems: found '', expected one of the systems that are open here, bm25, "),
        ("search?q=a&systems=bm25,nope", "systems: found 'nope', expected one of the systems that are open"),
        (f"search?q={'a' * 1001}&systems=bm25", "q: found 1,001 characters, expected 1,000 at most; shorten"),
        *(
            (f"search?q=a&systems=bm25&k={k}", f"k: found '{k}', expected a number from 1")
            for k in (0, DEPTH + 1, "x", "-1", "1e3", "9" * 50)
        ),
        ("search?q=a&systems=bm25&k=%D9%A3", "k: found '٣', expected a number"),
        ("search?q=a&systems=bm25&depth=3", "address: found 'depth', expected only q, systems, k"),
        ("search?q=a&q=b&systems=bm25", "address: found a parameter twice"),
        ("search?q=many+words&systems=bm25", "query: found too many words"),
        ("why?q=a&system=bm25,short&doc_id=p1", "system: found 2 names, expected one of"),
        ("why?q=a&system=x&doc_id=p1", "system: found 'x'"),
    ],
)
def test_mistakes_are_told_in_a_line(client, path, words):
    response = client.get(f"/api/{path}")
    assert response.status_code == 400
    assert words in error_of(response)


def test_a_defect_is_told_and_logged_and_the_next_request_answered(client, caplog):
    response = client.get("/api/search?q=defect&systems=bm25")
    assert response.status_code == 500
    assert error_of(response) == "a defect of the server, whose log says more"
    assert "ZeroDivisionError" in caplog.text
    assert client.get("/api/search?q=a&systems=bm25").status_code == 200


# The line of requests.


async def ask(app, query, receive=None):
    """Ask the app as a server does; status and answer."""
    sent, done = [], asyncio.Event()

    async def waiting():
        await done.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    path, _, rest = f"/api/search?q={query}&systems=bm25,short&k=20".partition("?")
    headers = [(b"host", HOST.encode())]
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": rest.encode()}
    await app({**scope, "headers": headers, "root_path": ""}, receive or waiting, send)
    done.set()
    return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent[1:]))


def test_200_requests_at_once_are_answered_rightly_in_the_same_memory(data):
    app = app_of(data)

    async def together(round_):
        return await asyncio.gather(*(ask(app, f"query+{round_}+{number}") for number in range(200)))

    used = []
    for round_ in range(3):
        for number, (status, found) in enumerate(asyncio.run(together(round_))):
            assert (status, found["query"]) == (200, f"query {round_} {number}")
            query = 3 + len(found["query"]) % 40
            for one in found["systems"]:
                expected = [f"p{doc}" for doc in rankings(one["system"]).get(query, [])[:20]]
                assert [result["doc_id"] for result in one["results"]] == expected
        used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
    # The peak in MB does not grow with the number of requests.
    assert used[-1] - used[0] < 5


def test_more_requests_than_may_wait_are_told_to_come_again(data):
    app = app_of(data, Scripted(seconds=0.01), Line(most=5))

    async def together():
        return await asyncio.gather(*(ask(app, f"q{number}") for number in range(20)))

    found = asyncio.run(together())
    assert [status for status, _ in found].count(200) == 5
    refused = [one for status, one in found if status == 503]
    assert len(refused) == 15
    assert refused[0] == {"error": "5 requests wait already: ask again later"}
    # The line is free again.
    assert asyncio.run(ask(app, "later"))[0] == 200


def test_what_nobody_waits_for_is_not_begun(data):
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
    assert left == (499, {"error": "the one who asked has left"})
    assert stays[0] == 200
    assert {text for _, text, _ in searcher.asked} == {"stays"}


def test_work_that_cannot_be_stopped_is_told():
    line, free = Line(), threading.Event()
    waiting = line.submit(free.wait)
    behind = line.submit(lambda: None)
    assert not line.end()
    free.set()
    assert waiting.result(10)
    assert behind.cancelled()
    assert line.end()
    line = Line()
    line.submit(partial(int, 1)).result(10)
    assert line.end()


def test_a_port_is_of_this_machine_alone_and_for_one_program():
    with listening(0) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        with pytest.raises(InputError, match=rf"--port: found {port} that another program listens at"), listening(port):
            pass
    with listening(port):
        pass
    with pytest.raises(InputError, match="--port: found 65536, expected 65535 at most"), listening(65_536):
        pass


def test_too_many_waiting_is_an_error_of_its_own():
    line = Line(most=0)
    with pytest.raises(HTTPException, match="503: 0 requests wait already"):
        asyncio.run(line.result(lambda: None, None))


def test_all_systems_are_open_here(client):
    for name in SYSTEMS:
        assert client.get("/api/search", params={"q": "a", "systems": name}).status_code == 200


def test_connections_send_what_they_have_at_once():
    # asyncio sets TCP_NODELAY where the socket names its protocol; else the second part of an answer waits for 40 ms.
    with listening(0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.proto == socket.IPPROTO_TCP
