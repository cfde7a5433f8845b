"""The command that serves the explorer: what it refuses, and the tiny experiment, asked, looked at and ended."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from urllib.parse import urlencode

import jsonschema
import psutil
import pytest

from cort import explore
from cort.formats import tables
from cort.formats.runs import read_run
from cort.online.manifest import write_manifest
from cort.online.serving import listening
from tests.support.browser import READY, launched, needs_browser, settle
from tests.support.common import wait_until
from tests.support.online import manifest_with

PATIENCE = 180  # seconds
#: a run that was imported, which nothing can search
CLOSED = "published"


@pytest.fixture
def pages(tmp_path):
    """Folder with a manifest, and pages of two splits."""
    write_manifest(tmp_path / "manifest.json", manifest_with(tmp_path))
    for split in ("test", "dev"):
        (tmp_path / "report" / "explore" / split).mkdir(parents=True)
        (tmp_path / "report" / "explore" / split / "index.html").touch()
    return tmp_path


def test_the_page_is_that_of_the_first_split_or_of_the_one_that_is_named(pages):
    assert explore.find_page(pages / "manifest.json", None).name == "dev"
    assert explore.find_page(pages / "manifest.json", "test").name == "test"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--split", "train"], "--split: found 'train', expected one of dev, test; name one of these"),
        (["--systems", "bm25", "nope"], "--systems: found 'nope', expected one of bm25, dense, both, reranked"),
        (["--port", "70000"], "--port: found 70000, expected 65535 at most; give another --port"),
        (["--threads", "2", "--experiment", "y"], "--experiment, --manifest: found both, expected one of the two"),
    ],
)
def test_wrong_options_are_told_in_a_line(pages, complaint, options, words):
    assert words in complaint(explore.main, ["--manifest", pages / "manifest.json", *options])


def test_what_is_not_built_and_a_port_that_is_taken_are_told_in_a_line(pages, complaint):
    with listening(0) as taken:
        port = taken.getsockname()[1]
        found = complaint(explore.main, ["--manifest", pages / "manifest.json", "--port", port])
    assert f"--port: found {port} that another program listens at, expected a free one" in found
    # It comes to the files only then.
    found = complaint(explore.main, ["--manifest", pages / "manifest.json", "--port", 0, "--systems", "bm25"])
    assert str(pages) in found
    for split in ("test", "dev"):
        (pages / "report" / "explore" / split / "index.html").unlink()
    found = complaint(explore.main, ["--manifest", pages / "manifest.json"])
    assert "explore: found no page, expected the explorer of a split; run `snakemake` first" in found


# The tiny experiment.


@contextmanager
def command(built, *options, **environment):
    """The command at work: its process, its address, and what it says in the end."""
    words = [sys.executable, "-m", "cort.explore", "--experiment", "tiny/tiny.yaml", "--port", "0", *options]
    process = subprocess.Popen(
        words,
        cwd=built,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def live(built, tmp_path_factory):
    """The command with all systems, and a browser that does not more than write down what it opens."""
    folder = tmp_path_factory.mktemp("browser")
    (folder / "browser").write_text(f'#!/bin/sh\necho "$1" > {folder}/opened\n')
    (folder / "browser").chmod(0o755)
    with command(built, "--open", BROWSER=str(folder / "browser")) as (process, address):
        assert address.startswith("http://127.0.0.1:"), process.communicate(timeout=PATIENCE)[1]
        wait_until((folder / "opened").exists, "the browser", PATIENCE)
        assert (folder / "opened").read_text().strip() in (address, "")
        yield process, address


def ask(address, path, **given):
    """Ask the server; the status and its answer."""
    try:
        with urllib.request.urlopen(f"{address}api/{path}?{urlencode(given)}", timeout=PATIENCE) as found:  # noqa: S310
            return found.status, json.load(found)
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code, json.load(error)


def status_of(address):
    """Status of an answer, or 400 if the connection was closed before all was sent."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE) as found:  # noqa: S310
            return found.status
    except urllib.error.HTTPError as error:
        with closing(error):
            return error.code
    except urllib.error.URLError:
        return 400


def queries_of(built):
    """Queries of the test split, by id."""
    table = tables.read_table(built / "results" / "tiny" / "collection" / "queries.test.parquet", tables.QUERIES)
    return dict(zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def systems_of(built):
    return list(json.loads((built / "results" / "tiny" / "manifest.json").read_text())["systems"])


@pytest.mark.slow
def test_answers_are_the_runs_of_the_workflow_and_what_is_promised(built, live):
    _, address = live
    document = ask(address, "openapi.json")[1]
    schema = {"$ref": "#/components/schemas/Answers", "components": document["components"]}
    names = systems_of(built)
    runs = {name: read_run(built / "results" / "tiny" / "runs" / "test" / f"{name}.trec").by_query() for name in names}
    for query_id, text in list(queries_of(built).items())[:4]:
        status, found = ask(address, "search", q=text, systems=",".join(names), k=10)
        assert status == 200
        jsonschema.Draft202012Validator(schema).validate(found)
        for one in found["systems"]:
            expected = runs[one["system"]].ranking(query_id)
            assert [result["doc_id"] for result in one["results"]] == expected.doc_ids[:10]
            assert [result["score"] for result in one["results"]] == pytest.approx(expected.scores[:10], abs=1e-5)


def check(reason):
    """See that what adds up to a score does, in a reason and in all of its parts."""
    if reason["total"]:
        assert sum(row[-1] for row in reason["rows"]) == pytest.approx(reason["score"], abs=2e-3)
    for part in reason["parts"]:
        check(part)


@pytest.mark.slow
def test_the_reason_of_a_result_adds_up_to_its_score(built, live):
    _, address = live
    text = next(iter(queries_of(built).values()))
    names = systems_of(built)
    totals = set()
    for one in ask(address, "search", q=text, systems=",".join(names), k=30)[1]["systems"]:
        for result in one["results"][::12]:
            status, reason = ask(address, "why", q=text, system=one["system"], doc_id=result["doc_id"])
            assert (status, reason["rank"]) == (200, result["rank"]), reason
            assert reason["score"] == pytest.approx(result["score"], abs=1e-5)
            assert reason["columns"] or reason["parts"] or not reason["total"]
            check(reason)
            totals |= {reason["kind"]} if reason["total"] else set()
    assert "bm25" in totals
    status, found = ask(address, "why", q=text, system="bm25", doc_id="no such passage")
    assert (status, "no passage 'no such passage'" in found["error"]) == (400, True)


@pytest.mark.slow
def test_200_requests_at_once_are_answered_rightly_in_the_same_memory(built, live):
    process, address = live
    texts = list(queries_of(built).values())
    expected = {text: ask(address, "search", q=text, systems="bm25,cort", k=5)[1]["systems"] for text in texts}
    used = []
    with ThreadPoolExecutor(200) as many:
        for _ in range(2):
            asked = (texts * 200)[:200]
            answers = list(many.map(lambda text: ask(address, "search", q=text, systems="bm25,cort", k=5), asked))
            for text, (status, found) in zip(asked, answers, strict=True):
                assert status == 200
                for one, known in zip(found["systems"], expected[text], strict=True):
                    assert one["results"] == known["results"]
            used.append(psutil.Process(process.pid).memory_info().rss >> 20)
    assert used[-1] - used[0] < 20
    # An address of 1 MB does not even get that far.
    assert status_of(f"{address}api/search?systems=bm25&q={'a' * 1_000_000}") in (400, 414)
    assert ask(address, "search", q=texts[0], systems="bm25", k=5)[0] == 200


@pytest.mark.slow
@needs_browser
def test_the_page_shows_live_answers_beside_stored_ones(built, live):
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make test installs it")
    _, address = live
    errors = []
    with launched(playwright) as browser:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(f"{address}#{urlencode({'a': 'bm25', 'b': 'cort+bm25-cross'})}")
        page.wait_for_selector(READY)
        page.get_by_role("button", name="Search now").click()
        settle(page)
        for side in "ab":
            ranks = page.locator(f".ranking.of-{side} .doc").all_text_contents()
            assert [line.partition(" · ")[2] for line in ranks] == [
                f"rank {rank} in the stored run" for rank in range(1, len(ranks) + 1)
            ]
        page.locator(".ranking.of-b").get_by_role("button", name="Why").first.click()
        page.wait_for_selector(".why table")
        assert page.locator(".why:visible b").all_text_contents()[0] == "cort+bm25-cross"
        # A run that was made elsewhere is no system that could be asked.
        page.select_option("#b", CLOSED)
        settle(page)
        assert f"found '{CLOSED}', expected one of the systems that are open" in page.locator("#message").inner_text()
        # The server's answer has a status that the console tells of.
        assert len([one for one in errors if "400" in one]) == len(errors) == 1


def end_while_a_query_runs(process, address, number):
    """Send a signal while BM25 does not answer; the exit status, after nothing is left."""
    children = psutil.Process(process.pid).children(recursive=True)
    for lucene in (one for one in children if "cort.online.lucene" in one.cmdline()):
        lucene.suspend()
    with ThreadPoolExecutor(3) as asking:
        waiting = [asking.submit(ask, address, "search", q="neriga", systems="bm25") for _ in range(3)]
        wait_until(lambda: len(psutil.Process(process.pid).net_connections()) > 3, "requests", PATIENCE)
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert not any(one.is_running() for one in children), said
    assert "Traceback" not in said
    assert " ERROR " not in said
    assert all(one.exception() is not None for one in waiting)
    return process.returncode


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_ends_at_once_when_it_is_terminated(built):
    with command(built, "--systems", "bm25") as (process, address):
        assert end_while_a_query_runs(process, address, signal.SIGTERM) == 143


@pytest.mark.slow
@pytest.mark.exhaustive
def test_it_ends_in_order_when_no_query_runs(built):
    with command(built, "--systems", "bm25") as (process, address):
        assert ask(address, "search", q="neriga", systems="bm25", k=1)[0] == 200
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in said) == (0, False)
    assert "peak memory" in said


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_while_a_query_runs_and_nothing_is_left(live):
    # The last one: the server of the tests above is gone then.
    assert end_while_a_query_runs(*live, signal.SIGINT) == 0
