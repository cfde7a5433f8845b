"""The command that serves the explorer: what it refuses, and how it serves the tiny experiment until it is ended."""

import json
import shlex
import signal
import stat
import subprocess
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import unquote, urlencode, urlsplit

import jsonschema
import psutil
import pytest

from cort import explore
from cort.config.stored import read_experiment
from cort.formats import tables
from cort.formats.runs import read_run
from cort.online.line import listening
from tests.support.common import texts_by_id, wait_until
from tests.support.online import results_with, write_results
from tests.support.processes import Python

PATIENCE = 180  # seconds
SPLITS = {name: {"queries": f"{name}.tsv", "qrels": f"{name}.qrels"} for name in ("test", "dev")}


@pytest.fixture
def results(tmp_path):
    """Settings of results with two splits, beside their pages and that of a removed one."""
    write_results(tmp_path, splits=SPLITS)
    for split in (*SPLITS, "a-removed-one"):
        (tmp_path / "report" / "explore" / split).mkdir(parents=True)
        (tmp_path / "report" / "explore" / split / "index.html").touch()
    return tmp_path


def test_the_page_is_that_of_the_first_or_the_named_split(results):
    for split, found in ((None, "dev"), ("test", "test")):
        assert explore.find_page(results_with(results, splits=SPLITS), split).name == found


def test_wrong_options_and_missing_files_are_reported(results, refused):
    assert "--split: found 'train', expected one of dev, test" in refused("explore", results=results, split="train")
    line = refused("explore", results=results, systems=["bm25", "nope"])
    assert "--systems: found 'nope', expected one of bm25, dense" in line
    # The port is checked before the files of systems.
    with listening(0) as taken:
        port = taken.getsockname()[1]
        assert f"--port: found {port} that another program uses" in refused("explore", results=results, port=port)
    assert str(results) in refused("explore", results=results, port=0, systems="bm25")
    for split in ("test", "dev"):
        (results / "report" / "explore" / split / "index.html").unlink()
    assert "explore: found no page, " in refused("explore", results=results)


def test_what_follows_the_judgements_is_a_build_or_the_verdict_with_all_that_it_was_given(tmp_path):
    config = tmp_path / "my notes.yaml"
    config.write_text("dataset: d\n")
    given = {"experiment": str(config), "judgements": "a b.jsonl"}
    about, command = explore.next_step(explore.Options(**given), "test")
    assert about == f"When all is judged, set splits.test.qrels of {config} to a b.jsonl, and: "
    assert shlex.split(command) == ["make", "results", f"CONFIG={config}"]
    named = json.dumps({"FOLDER": "ä b", "QRELS": "old.tsv", "NAME": "my notes", "LANGUAGE": "en", "WORDS": "100"})
    config.write_text(f"# Written by `make verdict` for {named}\n# more\n")
    _, command = explore.next_step(explore.Options(**given), "test")
    named = {"FOLDER=ä b", "QRELS=a b.jsonl", "NAME=my notes", "LANGUAGE=en", "WORDS=100"}
    words = shlex.split(command)
    assert (words[:2], {*words[2:]}, len(words)) == (["make", "verdict"], named, 7)


# The tiny experiment.


@contextmanager
def command(built, *options, **environment):
    """Run the command; yields its process and its address."""
    words = ("-m", "cort.explore", "--experiment", "tiny/tiny.yaml", "--port", 0, *options)
    own = {"cwd": built, "environment": environment, "start_new_session": True}
    with Python(*words, **own, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        yield process, process.stdout.readline().strip()


@pytest.fixture(scope="module")
def live(built, tmp_path_factory):
    """Run the command with all systems."""
    with command(built) as (process, address):
        assert address.startswith("http://127.0.0.1:"), process.communicate(timeout=PATIENCE)[1]
        yield process, address


@pytest.mark.slow
def test_a_browser_gets_the_address_in_a_file_that_other_accounts_cannot_read(built, tmp_path):
    (tmp_path / "browser").write_text(f'#!/bin/sh\ncd {tmp_path} && echo "$@" > begun && mv begun opened\n')
    (tmp_path / "browser").chmod(0o755)
    with command(built, "--systems", "bm25", "--open", BROWSER=str(tmp_path / "browser")) as (process, address):
        wait_until((tmp_path / "opened").exists, "the browser", PATIENCE)
        words = (tmp_path / "opened").read_text()
        assert address.strip("/").rpartition("/")[2] not in words
        page = Path(unquote(urlsplit(words.strip()).path))
        assert [stat.S_IMODE(path.stat().st_mode) for path in (page, page.parent)] == [0o600, 0o700]
        assert f'<meta http-equiv="refresh" content="0; url={address}">' in page.read_text("utf-8")
        process.end(signal.SIGINT)
        assert not page.parent.exists()


def ask(address, path, **given):
    """Send a request to the server; return the status and its answer."""
    try:
        with urllib.request.urlopen(f"{address}api/{path}?{urlencode(given)}", timeout=PATIENCE) as response:  # noqa: S310
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, json.load(error)


def queries_of(built):
    """Queries of the test split, by id."""
    return texts_by_id(built / "results" / "tiny" / "collection" / "queries.test.parquet", tables.QUERIES)


def systems_of(built):
    return read_experiment(built / "results" / "tiny" / "experiment.yaml").searchable


def check_sums(reason):
    """Check that the rows of a reason, and of all its parts, add up to its score where they should."""
    if reason["total"]:
        assert sum(row[-1] for row in reason["rows"]) == pytest.approx(reason["score"], abs=2e-3)
    for part in reason["parts"]:
        check_sums(part)


@pytest.mark.slow
def test_answers_are_the_runs_of_the_workflow_and_are_explained(built, live):
    _, address = live
    document = ask(address, "openapi.json")[1]
    schema = {"$ref": "#/components/schemas/Answers", "components": document["components"]}
    query_id, text = next(iter(queries_of(built).items()))
    names, totals = systems_of(built), set()
    status, content = ask(address, "search", q=text, systems=",".join(names), k=30)
    assert status == 200
    jsonschema.Draft202012Validator(schema).validate(content)
    for name, answer in zip(names, content["systems"], strict=True):
        expected = read_run(built / "results" / "tiny" / "runs" / "test" / f"{name}.trec").by_query().ranking(query_id)
        assert [result["doc_id"] for result in answer["results"]] == expected.doc_ids[:30]
        assert [result["score"] for result in answer["results"]] == pytest.approx(expected.scores[:30], abs=1e-5)
        for result in answer["results"][::12]:
            status, reason = ask(address, "why", q=text, system=name, doc_id=result["doc_id"])
            assert (status, reason["rank"]) == (200, result["rank"]), reason
            assert reason["score"] == pytest.approx(result["score"], abs=1e-5)
            assert reason["columns"] or reason["parts"] or not reason["total"]
            check_sums(reason)
            totals |= {reason["kind"]} if reason["total"] else set()
    assert "bm25" in totals
    status, content = ask(address, "why", q=text, system="bm25", doc_id="no such passage")
    assert (status, "no passage 'no such passage'" in content["error"]) == (400, True)


@pytest.mark.slow
def test_200_requests_at_once_are_answered_correctly_in_the_same_memory(built, live):
    process, address = live
    texts = list(queries_of(built).values())

    def systems_for(text):
        status, content = ask(address, "search", q=text, systems="bm25,cort", k=5)
        assert status == 200
        return [answer["results"] for answer in content["systems"]]

    expected = {text: systems_for(text) for text in texts}
    requests, used = (texts * 200)[:200], []
    with ThreadPoolExecutor(200) as clients:
        for _ in range(2):
            assert list(clients.map(systems_for, requests)) == [expected[text] for text in requests]
            used.append(psutil.Process(process.pid).memory_info().rss >> 20)
    assert used[-1] - used[0] < 20
    # An address of 1 MB is refused, or the connection is closed before all of it was sent.
    with pytest.raises(urllib.error.URLError) as refused:
        urllib.request.urlopen(f"{address}api/search?q={'a' * 1_000_000}", timeout=PATIENCE)  # noqa: S310
    assert getattr(refused.value, "code", 400) in (400, 414)
    assert systems_for(texts[0]) == expected[texts[0]]


@pytest.mark.slow
def test_results_are_judged_into_a_file_of_one_server(built, tmp_path):
    file = tmp_path / "judged.jsonl"
    words = ("--systems", "bm25", "--judgements", str(file), "--pool", "2")
    with command(built, *words) as (_, opened):
        address = opened.removesuffix("#judge")
        assert address != opened
        state = ask(address, "judgements")[1]
        assert [one["query_id"] for one in state["queries"]] == list(queries_of(built))
        first = state["queries"][0]
        runs = sorted((built / "results" / "tiny" / "runs" / "test").glob("*.trec"))
        found = {doc_id for run in runs for doc_id in read_run(run).by_query()[first["query_id"]][:2]}
        # Of all systems, though one is open.
        assert set(first["candidates"]) == found
        doc_id, text = next(iter(ask(address, "judgements", query_id=first["query_id"])[1]["texts"].items()))
        judged = {"query_id": first["query_id"], "doc_id": doc_id, "text": text, "relevance": 3}
        headers = {"Content-Type": "application/json", "Origin": f"http://{urlsplit(address).netloc}"}
        request = urllib.request.Request(f"{address}api/judgements", json.dumps(judged).encode(), headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
            assert json.load(response) == {}
        with command(built, *words) as (other, nothing):
            assert (nothing, other.wait(PATIENCE)) == ("", 1)
            assert f"{file}: found a file that another program writes" in other.stderr.read()
    assert json.loads(file.read_text("utf-8")) == judged | {"text": text[:300]}


def end_while_a_query_runs(process, address, number):
    """Send a signal while BM25 does not answer; return the exit status after checking that nothing is left."""
    children = psutil.Process(process.pid).children(recursive=True)
    for child in children:
        if any("cort.retrieval.lucene" in word for word in child.cmdline()):
            child.suspend()
    with ThreadPoolExecutor(3) as clients:
        waiting = [clients.submit(ask, address, "search", q="neriga", systems="bm25") for _ in range(3)]
        wait_until(lambda: len(psutil.Process(process.pid).net_connections()) > 3, "requests", PATIENCE)
        status, errors = process.end(number)
    assert not any(child.is_running() for child in children), errors
    assert "Traceback" not in errors and " ERROR " not in errors
    assert all(request.exception() is not None for request in waiting)
    return status


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_ends_at_once_by_sigterm_and_normally_when_no_query_runs(built):
    with command(built, "--systems", "bm25") as (process, address):
        assert end_while_a_query_runs(process, address, signal.SIGTERM) == 143
    with command(built, "--systems", "bm25") as (process, address):
        assert ask(address, "search", q="neriga", systems="bm25", k=1)[0] == 200
        status, errors = process.end(signal.SIGINT)
    assert (status, "Traceback" in errors, "peak memory" in errors) == (0, False, True)


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_while_a_query_runs(live):
    # The last test: it ends the server of the tests above.
    assert end_while_a_query_runs(*live, signal.SIGINT) == 0
