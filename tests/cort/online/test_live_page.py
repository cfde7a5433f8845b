"""The explorer's page with a server: any query, its answers beside the stored ones, and why."""

from urllib.parse import urlencode

import pytest

from cort import explorer
from cort.online import web
from cort.systems.live import Reason
from tests.support.browser import AXE, READY, WIDTHS, cut_of, faults_of, needs_browser, settle, watched
from tests.support.common import wait_until
from tests.support.explorer import HOSTILE, HOSTILE_NAME, SYSTEMS, judgements, rankings, text_of_query, write_experiment
from tests.support.live import DEPTH, Scripted, number_of, served
from tests.support.steps import choose, click, go_back

pytestmark = needs_browser

NEW = "Where do rivers run?"


@pytest.fixture(scope="module")
def searcher():
    return Scripted(SYSTEMS[:3])


@pytest.fixture(scope="module")
def address(data, searcher):
    def explain(_, system, text, doc_id):
        if system == "short":
            raise ZeroDivisionError
        part = Reason(HOSTILE, "bm25", 1, 2.5, HOSTILE, ["term", "adds"], [[HOSTILE, 1.23456], ["city", 1.26544]], True)
        return Reason(system, "linear", None, None, text, ["part", "rank"], [["bm25", None]], parts=[part])

    patch = pytest.MonkeyPatch()
    patch.setattr(web, "explain", explain)
    with served(searcher, data) as found:
        yield found
    patch.undo()


@pytest.fixture
def page(context, address):
    """A page whose requests and errors are all checked; the console reports refusals."""
    with watched(context, (address, "blob:"), tolerated="the server responded with a status of") as page:
        yield page


def show(page, address, **wanted):
    page.goto("about:blank")
    page.goto(address + (f"#{urlencode(wanted)}" if wanted else ""))
    page.wait_for_selector(READY)


def search(page, text):
    """Type a query, and wait for its answers."""
    page.fill("#text", text)
    page.press("#text", "Enter")
    settle(page)


def shown_ids(page, side):
    return [line.partition(" ")[0] for line in page.locator(f".ranking.of-{side} .doc").all_text_contents()]


def expected_ids(name, text, depth=20):
    return [f"p{one}" for one in rankings(name)[number_of(text)][:depth]]


def test_any_query_is_answered_by_both_systems(page, address):
    show(page, address, a="bm25", b="short", q="q7")
    assert page.locator("#links").is_hidden()
    assert page.get_attribute("#k", "max") == str(DEPTH)
    page.fill("#k", "10")
    search(page, NEW)
    assert page.evaluate("document.activeElement.id") == "text"
    assert page.locator("h2").inner_text() == NEW
    for side, name in (("a", "bm25"), ("b", "short")):
        assert shown_ids(page, side) == expected_ids(name, NEW, 10)
        times = page.locator(f".ranking.of-{side} .times li").all_inner_texts()
        assert [line.split()[:2] for line in times] == [["bm25", "2.5"], ["merge", "0.3"], ["total", "2.8"]]
        bars = page.locator(f".ranking.of-{side} meter").evaluate_all("all => all.map((one) => one.value / one.max)")
        assert bars == pytest.approx([2.5 / 2.75, 0.25 / 2.75, 1])
    common = set(expected_ids("bm25", NEW, 10)) & set(expected_ids("short", NEW, 10))
    assert page.locator(".moves path").count() == len(common)
    assert page.locator(".badge").count() == 0
    assert "Rivers" in page.locator("mark").all_text_contents()
    assert page.locator("#list [aria-selected=true]").count() == 0


def test_a_query_of_the_list_is_compared_with_its_stored_run(page, address):
    text = text_of_query(7)
    show(page, address, a="bm25", b="short", q="q7", k="22")
    click(page.get_by_role("button", name="Search now"))
    for side, name in (("a", "bm25"), ("b", "short")):
        assert shown_ids(page, side) == expected_ids(name, text, 22)
        places = [line.partition(" · ")[2] for line in page.locator(f".ranking.of-{side} .doc").all_text_contents()]
        relevant = {f"p{doc}" for doc, grade in judgements()[7].items() if grade}
        # The page knows the rank of relevant passages in the complete run.
        lower = [
            f"rank {rank} in the stored run" if doc in relevant else "not in the stored run's first 20"
            for rank, doc in enumerate(expected_ids(name, text, 22)[20:], 21)
        ]
        assert places == [*(f"rank {rank} in the stored run" for rank in range(1, 21)), *lower]
    assert page.locator(".badge").count() == 44
    assert page.locator("#list [aria-selected=true] .text").inner_text() == text
    click(page.get_by_role("button", name="Stored runs"))
    assert page.locator(".times").count() == 0
    assert page.locator(".relevant-passages").count() == 1


def test_an_address_asks_and_the_back_button_works(page, address):
    show(page, address, a="short", b="bm25", text=NEW)
    assert (page.locator("h2").inner_text(), page.input_value("#text")) == (NEW, NEW)
    click(page.locator("#list [aria-selected=false]").nth(3))
    assert page.locator("h2").inner_text() != NEW
    go_back(page)
    choose(page, "#a", HOSTILE_NAME)
    assert shown_ids(page, "a") == expected_ids(HOSTILE_NAME, NEW)
    page.fill("#text", "another one")
    click(page.get_by_role("button", name="Search", exact=True))
    assert page.locator("h2").inner_text() == "another one"
    go_back(page)
    assert (page.locator("h2").inner_text(), page.input_value("#text")) == (NEW, NEW)


def test_a_reason_is_shown_below_a_result_and_markup_is_only_text(page, address):
    show(page, address, a=HOSTILE_NAME, b="short", text=HOSTILE)
    assert page.locator("h2").inner_text() == HOSTILE
    assert HOSTILE_NAME in page.locator(".ranking.of-a h3").inner_text()
    # The keyboard alone is enough.
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Why":
            break
    page.keyboard.press("Enter")
    page.wait_for_selector(".why table")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    reason = page.locator(".why:visible")
    assert reason.locator("p").first.inner_text() == f"{HOSTILE_NAME}: not among its results. {HOSTILE}"
    assert reason.locator("table").nth(1).locator("tbody tr").last.inner_text().split() == ["city", "1.265"]
    assert page.locator("img, svg:not(.moves, #scatter, #histogram)").count() == 0
    assert page.evaluate("document.scripts.length") == 1
    page.keyboard.press("Enter")
    assert page.locator(".why:visible").count() == 0
    # An error is shown instead of the reason.
    page.locator(".ranking.of-b").get_by_role("button", name="Why").first.click()
    wait_until(lambda: "a bug in the server" in page.locator(".why:visible").inner_text(), "the error", 20)


@pytest.mark.parametrize(
    ("text", "words"), [(" ", "query: found no word"), ("many words", "found too many words"), ("defect", "a bug in")]
)
def test_errors_of_a_query_are_shown(page, address, text, words):
    show(page, address, a="bm25", b="short", text=text)
    assert words in page.locator("#message").inner_text()
    assert page.locator(".ranking").count() == 0
    # The next one is answered, be it by nothing.
    search(page, "nothing")
    assert "bm25 finds nothing" in page.locator(".ranking.of-a .message").inner_text()
    search(page, NEW)
    assert page.locator("#message").is_hidden()
    assert len(shown_ids(page, "a")) == 20


def test_a_search_replaces_the_previous_one(page, address, searcher):
    show(page, address, a="bm25", b="short")
    del searcher.searched[:]
    searcher.free.clear()
    try:
        for text in ("first", "second", "third"):
            page.fill("#text", text)
            page.press("#text", "Enter")
            page.wait_for_timeout(50)
        # Until the server has noticed that the second one is not wanted any more.
        page.wait_for_timeout(500)
        assert page.get_attribute("#page", "aria-busy") == "true"
        assert page.locator("#status").inner_text() in ("Searching", "")
    finally:
        searcher.free.set()
    page.wait_for_selector(READY)
    assert page.locator("h2").inner_text() == "third"
    # The second one was given up before its turn came.
    assert {text for _, text, _ in searcher.searched} == {"first", "third"}


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1600, "light")])
def test_axe_finds_no_violation(page, address, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    # Short rankings, as axe looks at each result.
    show(page, address, a="bm25", b=HOSTILE_NAME, text=NEW, k="3")
    page.evaluate(AXE)
    page.locator(".ranking.of-a").get_by_role("button", name="Why").first.click()
    page.wait_for_selector(".why table")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert faults_of(page) == []
    for wanted in ({"text": text_of_query(7), "a": "short", "b": "bm25", "k": "3"}, {"text": "nothing"}, {"text": " "}):
        page.evaluate("hash => { location.hash = hash; }", urlencode(wanted))
        settle(page)
        assert faults_of(page) == []


def test_nothing_of_the_start_and_of_answers_is_cut_or_hidden_at_any_width(page, address):
    for wanted in ({}, {"a": "bm25", "b": HOSTILE_NAME, "text": NEW, "k": "3"}):
        show(page, address, **wanted)
        assert [(width, one) for width in WIDTHS for one in cut_of(page, width)] == []


def test_a_system_that_is_not_open_and_a_server_that_has_ended_are_reported(context, data):
    page = context.new_page()
    with served(Scripted(["bm25"]), data) as address:
        show(page, address, a="bm25", b="short", text=NEW)
        assert "found 'short'" in page.locator("#message").inner_text()
    search(page, NEW)
    assert "cort.explore" in page.locator("#message").inner_text()
    page.close()


def test_documents_are_compared_with_those_of_the_stored_run(context, tmp_path):
    assert explorer.main(write_experiment(tmp_path, documents=True)) == 0
    searcher = Scripted(SYSTEMS[:3], aggregate="max")
    with served(searcher, tmp_path / "page" / "data") as address, watched(context, (address, "blob:")) as page:
        show(page, address, a="bm25", b="short", text=text_of_query(7), k="5")
        documents = [*dict.fromkeys(passage // 4 for passage in rankings("bm25")[7])]
        assert shown_ids(page, "a") == [f"d{one}" for one in documents[:5]]
        lines = page.locator(".ranking.of-a .doc").all_text_contents()
        assert [line.rpartition(" \N{MIDDLE DOT} ")[2] for line in lines] == [
            f"rank {rank} in the stored run" for rank in range(1, 6)
        ]
        assert all(" \N{MIDDLE DOT} passage " in line for line in lines)
