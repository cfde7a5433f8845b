"""The page that judges, in a browser: by keyboard and mouse, through a crash, until its file is that of a split."""

import json
import re
import subprocess

import pytest

from cort import split
from cort.formats.tables import QRELS, read_table
from cort.online.line import listening
from tests.support.browser import AXE, WIDTHS, cut_of, faults_of, needs_browser, watched
from tests.support.explorer import HOSTILE, number_of_passage, text_of_passage, text_of_query
from tests.support.judging import NEXT, pool_of, write_judged
from tests.support.live import Scripted, served
from tests.support.processes import Python

pytestmark = needs_browser

QUERIES = 10
READY = "#judge[aria-busy=false]"


@pytest.fixture
def page(context, data, tmp_path):
    """A page in which a person begins to judge."""
    judging = write_judged(tmp_path, QUERIES)
    with served(Scripted(), data, judging) as address, watched(context, (address, "blob:")) as page:
        show(page, address)
        yield page
    judging._lock.release()


def show(page, address):
    page.goto("about:blank")
    page.goto(f"{address}#judge")
    wait_for(page)


def wait_for(page):
    """Wait until a text is shown."""
    page.wait_for_selector(READY)


def press(page, key):
    """Press a key, and wait until what follows is shown."""
    page.keyboard.press(key)
    page.wait_for_selector(READY)


def progress(page):
    return page.locator("#progress").inner_text()


def total():
    return sum(len(pool_of(query)) for query in range(QUERIES))


def said(judged):
    """Progress, after judgements of some queries in their order."""
    known = [{passage for asked, passage in judged if asked == query} for query in range(QUERIES)]
    finished = sum(pool_of(query) <= known[query] for query in range(QUERIES))
    query = min(finished, QUERIES - 1)
    return f"{finished} of {QUERIES} queries; {len(known[query])} of {len(pool_of(query))} texts of this one"


def lines_of(folder):
    return [json.loads(line) for line in (folder / "judged.jsonl").read_text("utf-8").splitlines()]


def pair_of(line):
    return int(line["query_id"][1:]), number_of_passage(line["doc_id"])


def process(folder, data, port):
    """Serve the page from a process of its own."""
    words = ("-m", "tests.support.judging", folder, data, folder / "judged.jsonl", port)
    started = Python(*words, stdout=subprocess.PIPE)
    assert started.stdout.readline() == "ready\n"
    return started


def test_20_judgements_by_keyboard_survive_a_crash_and_become_a_split(context, data, tmp_path):
    judging = write_judged(tmp_path, QUERIES)
    judging._lock.release()
    with listening(0) as listener:
        port = listener.getsockname()[1]
    address, grades, texts = f"http://127.0.0.1:{port}/", [3, 0, 1, 2] * 5, []
    with process(tmp_path, data, port) as server, watched(context, (address, "blob:")) as page:
        show(page, address)
        assert progress(page) == said([])
        for number, grade in enumerate(grades):
            texts.append((page.locator("#question").inner_text(), page.locator("#candidate").text_content()))
            press(page, str(grade))
            assert len(lines_of(tmp_path)) == number + 1
        judged = [pair_of(line) for line in lines_of(tmp_path)]
        assert progress(page) == said(judged)
        server.kill()
        server.wait()
        with (tmp_path / "judged.jsonl").open("a") as file:
            file.write('{"query_id": "q3", "do')
        with process(tmp_path, data, port):
            show(page, address)
            assert progress(page) == said(judged)
            press(page, "u")
            assert progress(page) == said(judged[:-1])
            # The text whose judgement was withdrawn is shown again.
            assert (page.locator("#question").inner_text(), page.locator("#candidate").text_content()) == texts[-1]
            press(page, "1")
            press(page, "u")
            press(page, "u")
            assert progress(page) == said(judged[:-2])
    lines = lines_of(tmp_path)
    assert [line["relevance"] for line in lines] == [*grades, None, 1, None, None]
    # Each text once, and those that were shown.
    assert len(set(judged)) == 20
    for (query, passage), (question, text) in zip(judged, texts, strict=True):
        assert passage in pool_of(query)
        assert question == (text_of_query(query) or "(an empty query)")
        assert text == text_of_passage(passage)
    (tmp_path / "queries.tsv").write_text("".join(f"q{query}\tquery {query}\n" for query in range(QUERIES)))
    files = {name: tmp_path / f"{name}.parquet" for name in ("queries", "qrels")}
    words = ["--queries", tmp_path / "queries.tsv", "--qrels", tmp_path / "judged.jsonl"]
    words += ["--passages", tmp_path / "collection" / "passages.parquet", "--output-counts", tmp_path / "counts.json"]
    words += [word for name, file in files.items() for word in (f"--output-{name}", file)]
    assert split.main([*map(str, words)]) == 0
    expected = [(f"q{query}", f"p{passage}", grade) for (query, passage), grade in zip(judged, grades, strict=True)]
    assert [tuple(row.values()) for row in read_table(files["qrels"], QRELS).to_pylist()] == expected[:18]
    counts = {"judgements_matched_by_id": 18, "matched_by_text": 0, "unmatched": 0, "withdrawn": 2}
    assert json.loads((tmp_path / "counts.json").read_text()) == counts


def test_a_mouse_is_enough_and_a_judgement_can_be_changed(page, tmp_path):
    assert not page.locator("#page").is_visible()
    assert page.locator("#undo").is_disabled()

    def click(button):
        button.click()
        page.wait_for_selector(READY)

    for _ in range(2):
        click(page.get_by_role("button", name=re.compile("^2 ")))
    first, _ = lines_of(tmp_path)
    page.locator("#before summary").click()
    again = page.locator("#before li").filter(has_text=text_of_passage(pair_of(first)[1])[:60])
    click(again.get_by_role("button", name="Judge again"))
    assert page.locator("#candidate").text_content() == text_of_passage(pair_of(first)[1])
    assert page.locator("#grades [aria-pressed=true]").inner_text().startswith("2")
    click(page.get_by_role("button", name=re.compile("^0 ")))
    assert [line["relevance"] for line in lines_of(tmp_path)] == [2, 2, 0]
    click(page.locator("#undo"))
    assert lines_of(tmp_path)[3] == first | {"relevance": None}
    page.locator("#judge select").select_option("4")
    page.wait_for_selector(READY)
    assert page.locator("#question").inner_text() == text_of_query(4)
    assert page.evaluate("document.activeElement.id") == "candidate"


def test_the_end_of_a_query_leads_to_the_next_one_and_all_have_an_end(page, tmp_path):
    shown = [page.locator("#question").inner_text()]
    for _ in range(total()):
        press(page, "0")
        shown.append(page.locator("#question").inner_text())
    assert [*dict.fromkeys(shown)] == [text_of_query(query) or "(an empty query)" for query in range(QUERIES)]
    assert progress(page).startswith(f"{QUERIES} of {QUERIES} queries; ")
    assert page.locator("#skips").is_disabled()
    assert page.locator("#after").inner_text() == f"{NEXT[0]}{NEXT[1]} Copy"
    assert page.locator("#candidate").text_content() == "Every text is judged."
    press(page, "0")
    assert len(lines_of(tmp_path)) == total()
    assert {pair_of(line) for line in lines_of(tmp_path)} == {
        (query, passage) for query in range(QUERIES) for passage in pool_of(query)
    }


def test_keys_are_grades_only_of_a_text_and_nothing_tells_a_system_a_rank_or_a_score(page, tmp_path):
    seen = page.locator("#judge").inner_text()
    assert not re.search(r"bm25|dense|both|score|rank \d|\d\.\d", seen), seen
    assert HOSTILE in page.locator("#question").inner_text()
    assert page.locator("#judge img").count() == 0
    page.locator("#judge select").focus()
    page.keyboard.press("3")
    page.locator("#candidate").focus()
    page.keyboard.press("Control+1")
    page.keyboard.press("7")
    page.get_by_role("link", name="Compare systems").click()
    page.wait_for_selector("#page[aria-busy=false]")
    page.keyboard.press("1")
    assert lines_of(tmp_path) == []
    page.get_by_role("link", name="Judge results").click()
    page.wait_for_selector(READY)
    press(page, "1")
    assert len(lines_of(tmp_path)) == 1


def test_what_is_skipped_comes_last_and_the_way_back_is_open(page, tmp_path):
    shown, pool = [page.locator("#candidate").text_content()], len(pool_of(0))
    for _ in range(pool):
        press(page, "s")
        shown.append(page.locator("#candidate").text_content())
    # Then the next query, whose text may be the same.
    assert len({*shown[:pool]}) == pool
    assert page.locator("#question").inner_text() == text_of_query(1)
    assert lines_of(tmp_path) == []
    for text in shown[-2::-1]:
        press(page, "Backspace")
        assert page.locator("#candidate").text_content() == text
    assert page.locator("#back").is_disabled()
    press(page, "2")
    assert text_of_passage(pair_of(lines_of(tmp_path)[0])[1]) == shown[0]
    # A judgement can be changed on the way back.
    press(page, "Backspace")
    assert page.locator("#grades [aria-pressed=true]").inner_text().startswith("2")
    press(page, "0")
    assert [line["relevance"] for line in lines_of(tmp_path)] == [2, 0]
    for _ in range(total() - pool):
        press(page, "3")
    assert page.locator("#question").inner_text() == HOSTILE
    assert {page.locator("#candidate").text_content(), *shown[:1]} <= {*shown[:pool]}
    assert progress(page) == f"{QUERIES - 1} of {QUERIES} queries; 1 of {pool} texts of this one"


def test_words_of_the_query_are_marked(page):
    page.locator("#judge select").select_option("5")
    page.wait_for_selector(READY)
    assert {one.lower() for one in page.locator("#candidate mark").all_text_contents()} >= {"city", "river"}


def test_equal_texts_are_judged_once_and_recorded_for_all(context, data, tmp_path):
    judging, searcher = write_judged(tmp_path, QUERIES), Scripted()
    searcher.passages.texts = lambda doc_ids: [f"text {number_of_passage(one) % 3}" for one in doc_ids]
    texts = [{one % 3 for one in pool_of(query)} for query in range(QUERIES)]
    assert len(texts[0]) < len(pool_of(0))
    with served(searcher, data, judging) as address, watched(context, (address, "blob:")) as page:
        show(page, address)
        for number in range(len(texts[0])):
            assert progress(page) == f"0 of {QUERIES} queries; {number} of {len(texts[0])} texts of this one"
            press(page, str(number))
        assert progress(page) == f"1 of {QUERIES} queries; 0 of {len(texts[1])} texts of this one"
        grades = {pair_of(line): (line["text"], line["relevance"]) for line in lines_of(tmp_path)}
        assert grades.keys() == {(0, one) for one in pool_of(0)}
        assert len({*grades.values()}) == len(texts[0])
        press(page, "u")
        show(page, address)
        # Of all of them, the judgement is withdrawn, and after a start anew.
        assert progress(page) == f"0 of {QUERIES} queries; {len(texts[0]) - 1} of {len(texts[0])} texts of this one"
    judging._lock.release()


def test_digits_of_a_french_keyboard_are_grades_without_the_shift_key(page, tmp_path):
    for key, shift in (("&", False), ("1", True), ("!", True)):
        event = {"key": key, "code": "Digit1", "shiftKey": shift, "bubbles": True}
        page.evaluate("event => document.body.dispatchEvent(new KeyboardEvent('keydown', event))", event)
        page.wait_for_selector(READY)
    assert [line["relevance"] for line in lines_of(tmp_path)] == [1, 1]


def test_judging_leaves_the_choice_of_systems_as_it_is(page):
    page.evaluate("location.hash = 'a=short&b=bm25'")
    page.wait_for_selector("#page[aria-busy=false]")
    page.get_by_role("link", name="Judge results").click()
    page.wait_for_selector(READY)
    assert page.input_value("#a") == "short"
    page.get_by_role("link", name="Compare systems").click()
    page.wait_for_selector("#page[aria-busy=false]")
    assert page.locator(".ranking.of-a h3").inner_text() == "A short"


def test_a_judgement_that_is_not_saved_is_reported(context, data, tmp_path):
    judging = write_judged(tmp_path, QUERIES)
    with served(Scripted(), data, judging) as address:
        page = context.new_page()
        show(page, address)
        text = page.locator("#candidate").text_content()
        judging.pools["q0"] = {}
        press(page, "1")
        assert "expected a candidate of the query" in page.locator("#message").inner_text()
    press(page, "1")
    assert "not saved" in page.locator("#message").inner_text()
    assert page.locator("#candidate").text_content() == text
    assert progress(page).startswith("0 of")
    page.close()
    judging._lock.release()


@pytest.mark.parametrize(("width", "scheme"), [(one, "dark" if one < 400 else "light") for one in WIDTHS])
def test_nothing_is_cut_and_axe_finds_no_violation(page, width, scheme):
    assert cut_of(page, width) == []
    page.emulate_media(color_scheme=scheme)
    page.evaluate(AXE)
    assert faults_of(page) == []
    press(page, "2")
    press(page, "3")
    page.locator("#before summary").click()
    assert faults_of(page) == []
    assert cut_of(page, width) == []
