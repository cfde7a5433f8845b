"""What a person judges, the file that gets the judgements, and which requests may write."""

import json
import os

import jsonschema
import pytest
from starlette.testclient import TestClient

from cort.online.judging import QUOTED
from cort.online.line import Line
from cort.online.web import make_app
from cort.runtime.errors import InputError
from tests.support.explorer import QUERIES_COUNT, number_of_passage, rankings, text_of_passage, text_of_query
from tests.support.judging import judging_of, pool_of, write_judged
from tests.support.live import Scripted

PORT = 8765
HOST = f"127.0.0.1:{PORT}"
PAGE = {"Origin": f"http://{HOST}"}
JSON = PAGE | {"Content-Type": "application/json"}


@pytest.fixture
def judging(tmp_path):
    return write_judged(tmp_path)


def client_of(judging, folder):
    app = make_app(Scripted(), folder, Line(), judging=judging)
    return TestClient(app, f"http://{HOST}", raise_server_exceptions=False)


@pytest.fixture
def client(judging, tmp_path):
    return client_of(judging, tmp_path)


def judgement(query=7, passage=None, relevance=2, **changes):
    passage = min(pool_of(query)) if passage is None else passage
    text = text_of_passage(passage)[:QUOTED]
    return {"query_id": f"q{query}", "doc_id": f"p{passage}", "text": text, "relevance": relevance, **changes}


def judge(client, *given, headers=PAGE, **changes):
    return client.post("/api/judgements", json=judgement(*given, **changes), headers=headers)


def lines_of(folder):
    return [json.loads(line) for line in (folder / "judged.jsonl").read_text("utf-8").splitlines()]


def error_of(response):
    found = response.json()
    assert set(found) == {"error"}
    return found["error"]


# Candidates.


def test_candidates_are_the_first_of_all_systems_in_an_order_that_tells_no_rank(client):
    state = client.get("/api/judgements").json()
    assert [(one["query_id"], one["query"]) for one in state["queries"]] == [
        (f"q{query}", text_of_query(query)) for query in range(QUERIES_COUNT)
    ]
    firsts = []
    for query, one in enumerate(state["queries"]):
        assert len(one["candidates"]) == len(set(one["candidates"]))
        assert {number_of_passage(doc_id) for doc_id in one["candidates"]} == pool_of(query)
        firsts.append(one["candidates"][0] == f"p{rankings('bm25')[query][0]}")
        texts = client.get("/api/judgements", params={"query_id": f"q{query}"}).json()["texts"]
        assert texts == {doc_id: text_of_passage(number_of_passage(doc_id)) for doc_id in one["candidates"]}
    # The first one is one of about eight.
    assert sum(firsts) < QUERIES_COUNT / 3
    assert state["judgements"] == []
    said = json.dumps(state) + client.get("/api/judgements?query_id=q7").text
    assert not [word for word in ("bm25", "dense", "both", "score", "rank") if f'"{word}"' in said]


def test_answers_are_those_of_the_description(client):
    components = client.get("/api/openapi.json").json()["components"]
    for name, query in (("Candidates", {}), ("Texts", {"query_id": "q7"})):
        schema = {"$ref": f"#/components/schemas/{name}", "components": components}
        judge(client)
        jsonschema.Draft202012Validator(schema).validate(client.get("/api/judgements", params=query).json())


def test_documents_are_judged_by_the_passage_that_counted(tmp_path):
    judging = write_judged(tmp_path, documents=True)
    [shown] = {judging.pools["q7"][f"d{rankings('bm25')[7][0] // 4}"]}
    assert number_of_passage(shown) == rankings("bm25")[7][0]
    assert all(doc_id == passage.partition("#")[0] for doc_id, passage in judging.pools["q7"].items())


# The file.


def test_a_judgement_is_on_disk_before_it_is_answered(client, tmp_path, monkeypatch):
    synced = []

    monkeypatch.setattr(os, "fsync", lambda number: synced.append(len(lines_of(tmp_path))))
    first, second = sorted(pool_of(7))[:2]
    for passage, grade in ((first, 0), (second, 3), (first, 1)):
        response = judge(client, 7, passage, grade)
        assert (response.status_code, response.json()) == (200, {})
    assert lines_of(tmp_path) == [judgement(7, first, 0), judgement(7, second, 3), judgement(7, first, 1)]
    assert synced == [1, 2, 3]
    assert client.get("/api/judgements").json()["judgements"] == [["q7", f"p{second}", 3], ["q7", f"p{first}", 1]]


def test_a_judgement_can_be_withdrawn(client, tmp_path):
    judge(client)
    assert judge(client, relevance=None).status_code == 200
    assert lines_of(tmp_path)[-1]["relevance"] is None
    assert client.get("/api/judgements").json()["judgements"] == []
    refused = judge(client, relevance=None)
    assert refused.status_code == 400
    assert "relevance: found null" in error_of(refused)
    assert len(lines_of(tmp_path)) == 2


def test_the_file_keeps_the_beginning_of_a_long_text(client, tmp_path):
    query, passage = next((query, one) for query in range(QUERIES_COUNT) for one in pool_of(query) if one % 7 == 0)
    assert judge(client, query, passage, text="City").status_code == 200
    assert lines_of(tmp_path)[0]["text"] == text_of_passage(passage)[:QUOTED]


def restarted(judging, folder):
    """Open the file again, as another process does."""
    judging._lock.release()
    judging._file.close()
    return judging_of(folder, folder / "judged.jsonl")


def test_judgements_are_read_again(judging, client, tmp_path):
    first, second, third = sorted(pool_of(7))[:3]
    for passage, grade in ((first, 0), (second, 3), (first, 1), (third, 2), (third, None)):
        judge(client, 7, passage, grade)
    # Of no candidate, and of one that had another text.
    strange = [judgement(doc_id="p59", text=text_of_passage(59)), judgement(8, text="an earlier text of this passage")]
    with (tmp_path / "judged.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(one) + "\n" for one in strange))
    again = restarted(judging, tmp_path)
    assert list(again.grades.items()) == [(("q7", f"p{second}"), 3), (("q7", f"p{first}"), 1)]
    assert len(lines_of(tmp_path)) == 7


@pytest.mark.parametrize("begun", ['{"query_id": "q8", "do', "\0" * 30, '{"query_id": "q8"}', "é"[:1] + "{"])
def test_a_line_that_was_not_written_completely_is_dropped(judging, client, tmp_path, caplog, begun):
    judge(client)
    path = tmp_path / "judged.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + begun.encode()[:-1] + b"\xc3")
    again = restarted(judging, tmp_path)
    assert path.read_bytes() == whole
    dropped = f"dropped the last line, of which only {len(begun.encode())} bytes were written"
    assert dropped in caplog.text
    assert list(again.grades.values()) == [2]


def test_a_last_line_without_an_end_is_kept(judging, client, tmp_path):
    judge(client)
    path = tmp_path / "judged.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    again = restarted(judging, tmp_path)
    other = max(pool_of(7))
    assert judge(client_of(again, tmp_path), 7, other, 1).status_code == 200
    assert lines_of(tmp_path) == [judgement(), judgement(7, other, 1)]


def test_a_full_disk_loses_nothing_but_the_judgement(judging, client, tmp_path):
    judge(client)
    before = (tmp_path / "judged.jsonl").read_bytes()
    file = judging._file

    class Full:
        seek, truncate, fileno = file.seek, file.truncate, file.fileno

        def write(self, line):
            return file.write(line[: len(line) // 2])

    judging._file = Full()
    response = judge(client, 7, max(pool_of(7)), 0)
    assert response.status_code == 507
    assert "not saved: No space left on device" in error_of(response)
    assert (tmp_path / "judged.jsonl").read_bytes() == before
    judging._file = file
    assert judge(client, 7, max(pool_of(7)), 0).status_code == 200
    assert len(lines_of(tmp_path)) == 2
    assert len(client.get("/api/judgements").json()["judgements"]) == 2


def test_two_programs_do_not_write_one_file(judging, tmp_path):
    with pytest.raises(InputError, match="found a file that another program writes"):
        judging_of(tmp_path, tmp_path / "judged.jsonl")


@pytest.mark.parametrize(("name", "found"), [("judged.csv", "'judged.csv'"), ("bad.jsonl", "unreadable content")])
def test_another_name_and_a_bad_line_are_refused(judging, tmp_path, name, found):
    (tmp_path / "bad.jsonl").write_text("x\n")
    with pytest.raises(InputError, match=f"found {found}"):
        judging_of(tmp_path, tmp_path / name)


# What is refused.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"query_id": "q99"}, "query_id: found 'q99'"),
        ({"doc_id": "p59"}, "doc_id: found 'p59'"),
        ({"text": "another text"}, "with this text"),
        ({"relevance": 4}, "found 4 at relevance"),
        ({"relevance": -1}, "found -1 at relevance"),
        ({"relevance": True}, "found true at relevance"),
        ({"relevance": 1.0}, "found 1.0 at relevance"),
        ({"relevance": "2"}, "found '2' at relevance"),
        ({"query_id": ["q7"]}, "at query_id"),
    ],
)
def test_wrong_judgements_are_refused(client, tmp_path, changes, words):
    response = judge(client, **changes)
    assert response.status_code == 400
    assert words in error_of(response)
    assert lines_of(tmp_path) == []


def test_wrong_bodies_and_parameters_are_refused(client, tmp_path):
    for body in (b"", b"{", b"\xff", b"[]", b"null", b'{"query_id": "q7"}'):
        response = client.post("/api/judgements", content=body, headers=JSON)
        assert response.status_code == (400 if body else 413), body
    for parameters, found in (("q=7", "'7'"), ("query_id=x", "'x'")):
        assert f"found {found}" in error_of(client.get(f"/api/judgements?{parameters}"))
    # A request to read writes nothing.
    response = client.request("GET", "/api/judgements", content=json.dumps(judgement()), headers=JSON)
    assert response.json()["judgements"] == []
    assert lines_of(tmp_path) == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        *(({"Origin": one}, 403) for one in ("", "null", "http://evil.example", f"https://{HOST}")),
        ({"Origin": f"http://localhost:{PORT}"}, 403),
        *(({"Sec-Fetch-Site": one}, 403) for one in ("cross-site", "same-site")),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Host": f"localhost:{PORT}", "Origin": f"http://localhost:{PORT}"}, 200),
    ],
)
def test_only_the_page_of_this_address_writes(client, tmp_path, headers, status):
    response = client.post("/api/judgements", content=json.dumps(judgement()), headers=JSON | headers)
    assert response.status_code == status, response.text
    assert len(lines_of(tmp_path)) == (status == 200)


def test_a_request_without_an_origin_or_a_length_is_refused(client, tmp_path):
    assert client.post("/api/judgements", json=judgement()).status_code == 403
    response = judge(client, more="x" * 10_000)
    assert response.status_code == 413
    assert "expected 1 to 9999" in error_of(response)
    body = json.dumps(judgement()).encode()
    # A chunked body may have a length beside it, which it need not keep.
    for more in ({}, {"Content-Length": str(len(body)), "Transfer-Encoding": "chunked"}):
        for method in ("POST", "GET"):
            response = client.request(method, "/api/judgements", content=iter([body]), headers=JSON | more)
            assert response.status_code == 411
            assert "Transfer-Encoding: found '" in error_of(response)
    assert lines_of(tmp_path) == []


def test_nothing_else_is_written(client):
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "/api/judgements", headers=JSON).status_code == 405
    for path in ("/api/search?q=a&systems=bm25", "/"):
        assert client.post(path, headers=JSON, json={}).status_code == 405


def test_without_a_file_nobody_judges(tmp_path):
    client = client_of(None, tmp_path)
    response = judge(client)
    assert (response.status_code, response.headers["allow"]) == (405, "GET, HEAD")
    assert client.get("/api/judgements").status_code == 404
    assert "judge.js" not in client.get("/").text
