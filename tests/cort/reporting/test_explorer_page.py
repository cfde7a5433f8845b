"""The explorer's page in a real browser, opened as a file."""

import csv
import shutil
from urllib.parse import urlencode

import numpy as np
import pytest

from cort import explorer
from tests.support.browser import (
    AXE,
    PATIENCE,
    READY,
    WIDTHS,
    cut_of,
    faults_of,
    launched,
    needs_browser,
    settle,
    watched,
)
from tests.support.common import wait_until
from tests.support.explorer import (
    ARABIC,
    HOSTILE,
    HOSTILE_NAME,
    QUERIES_COUNT,
    judgements,
    rankings,
    score,
    text_of_passage,
    text_of_query,
    values,
    write_experiment,
)
from tests.support.steps import choose, click, find, go_back

pytestmark = needs_browser


def wait_for(page, expression):
    """Wait for a condition; Playwright's own waiting evaluates it in the page, which forbids that."""
    wait_until(lambda: page.evaluate(expression), expression, PATIENCE / 1_000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("explorer"))


@pytest.fixture(scope="module")
def browser():
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def context(browser):
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    return context


@pytest.fixture
def page(context, folder):
    """A page whose every request and every error is seen."""
    with seen(context, folder) as page:
        yield page


def seen(context, folder):
    return watched(context, (folder.as_uri() + "/", "blob:null/"))


def written(folder, **options):
    """Write a page of another experiment; its folder."""
    assert explorer.main(write_experiment(folder, **options)) == 0
    return folder / "page"


def show(page, folder, **wanted):
    """Open the page at an address, as a link from outside does."""
    page.goto("about:blank")
    page.goto(f"{folder.as_uri()}/index.html" + (f"#{urlencode(wanted)}" if wanted else ""))
    page.wait_for_selector(READY)


def difference(query, a, b, measure="RR@10"):
    return values(a)[f"q{query}"][measure] - values(b)[f"q{query}"][measure]


def ordered(a, b, measure="RR@10"):
    """Queries by the difference, the largest advantage of `a` first."""
    return sorted(range(QUERIES_COUNT), key=lambda query: -difference(query, a, b, measure))


def listed(page):
    return page.locator("#list [role=option] .text").all_text_contents()


def shown_ids(page, side):
    return page.locator(f".ranking.of-{side} .doc").all_text_contents()


def test_queries_come_by_the_difference_of_two_systems(page, folder):
    show(page, folder, a="short", b="bm25", measure="nDCG@20")
    order = ordered("short", "bm25", "nDCG@20")
    assert listed(page)[:10] == [text_of_query(one) for one in order[:10]]
    gains = [difference(query, "short", "bm25", "nDCG@20") for query in range(QUERIES_COUNT)]
    assert page.locator("#counts b").all_text_contents() == [str(sum(np.sign(gains) == sign)) for sign in (1, 0, -1)]
    choose(page, "#sort", "against")
    assert listed(page)[0] == text_of_query(ordered("bm25", "short", "nDCG@20")[0])


def test_rankings_stand_side_by_side_with_grades_ranks_and_moves(page, folder):
    show(page, folder, a="bm25", b="short", q="q7")
    whole = [rankings(name)[7] for name in ("bm25", "short")]
    for side, ranking in zip("ab", whole, strict=True):
        assert shown_ids(page, side) == [f"p{one}" for one in ranking[:20]]
    common = set(whole[0][:20]) & set(whole[1][:20])
    assert page.locator(".moves path").count() == len(common)
    assert page.locator(".ranking.of-a .alone").count() == 20 - len(common)
    [(relevant, grade)] = [(one, grade) for one, grade in judgements()[7].items() if grade]
    row = page.locator(".relevant-passages tbody tr").first.locator("th, td").all_text_contents()
    ranks = [f"rank {one.index(relevant) + 1}" if relevant in one else "not retrieved" for one in whole]
    assert row[:4] == [f"p{relevant}", str(grade), *ranks]
    both = sorted(common, key=whole[0].index)[0]
    line = page.locator(f".ranking.of-a .result:has-text('p{both}') .move").first.inner_text()
    assert f"rank {whole[1].index(both) + 1} in short" in line
    assert {"river", "city"} <= {one.lower() for one in page.locator("mark").all_text_contents()}
    # Words of the query, not others with the same stem.
    assert "running" not in page.locator("mark").all_text_contents()


def test_a_result_shows_its_whole_text_and_is_copied_as_a_line_of_the_run(page, folder):
    show(page, folder, a="bm25", b="short", q="q7")
    item = page.locator(".result:has(button[aria-expanded])").first
    button = item.locator("button[aria-expanded]")
    before = len(item.locator(".passage").inner_text())
    button.click()
    assert len(item.locator(".passage").inner_text()) > 2 * before
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert len(item.locator(".passage").inner_text()) == before
    page.locator(".ranking.of-b button:has-text('Copy TREC line')").nth(2).click()
    wait_for(page, "document.querySelector('#status').textContent.startsWith('Copied')")
    expected = f"q7 Q0 p{rankings('short')[7][2]} 3 {score(3):g} short"
    assert page.evaluate("navigator.clipboard.readText()") == expected


def test_markup_in_texts_queries_and_names_is_only_text(page, folder):
    show(page, folder, a=HOSTILE_NAME, b="bm25", q="q0")
    assert page.locator("h2").inner_text() == HOSTILE
    assert HOSTILE_NAME in page.locator(".ranking.of-a h3").inner_text()
    assert page.locator("img, svg:not(.moves, #scatter, #histogram)").count() == 0
    find(page, "onerror")
    assert listed(page) == [HOSTILE]
    page.locator("#find").press("Tab")
    page.locator("summary:visible").click()
    page.get_by_label("Text of p3", exact=True).click()
    assert page.locator("td.passage").inner_text() == HOSTILE
    assert page.evaluate("document.scripts.length") == 1


def test_an_address_shows_what_it_says_and_the_back_button_works(page, folder):
    show(page, folder, a="short", b=HOSTILE_NAME, measure="R@100", q="q12")
    assert [page.input_value(f"#{one}") for one in ("a", "b", "measure")] == ["short", HOSTILE_NAME, "R@100"]
    assert page.locator("h2").inner_text() == text_of_query(12)
    click(page.locator("#list [aria-selected=false]").nth(3))
    chosen = page.locator("h2").inner_text()
    choose(page, "#a", "bm25")
    assert page.locator(".ranking.of-a h3").inner_text() == "A bm25"
    go_back(page)
    assert (page.input_value("#a"), page.locator("h2").inner_text()) == ("short", chosen)
    go_back(page)
    assert page.locator("h2").inner_text() == text_of_query(12)


def test_what_an_address_asks_for_in_vain_is_said(page, folder):
    show(page, folder, a="nothing", q="q999", text="a river")
    message = page.locator("#message").inner_text()
    assert all(found in message for found in ("a=nothing", "text=a river", "q=q999"))
    assert page.locator("#ask").is_hidden()
    assert len(shown_ids(page, "b")) == 20


def test_a_chart_selects_queries(page, folder):
    show(page, folder, a="short", b="bm25")
    bar = page.locator("#histogram [role=button]").last
    number, _, _ = bar.get_attribute("aria-label").partition(" ")
    click(bar)
    assert page.locator("#shown").inner_text() == f"{number} of {QUERIES_COUNT} queries"
    assert 0 < len(listed(page)) <= int(number)
    click(page.locator("#unpick"))
    dot = page.locator("#scatter [role=button]").nth(2)
    number, _, _ = dot.get_attribute("aria-label").partition(" ")
    click(dot)
    assert page.locator("#shown").inner_text().startswith(f"{number} of ")
    sizes = [one.partition(" ")[0] for one in page.locator("#scatter title").all_text_contents()]
    assert sum(map(int, sizes)) == QUERIES_COUNT


def test_filters(page, folder):
    show(page, folder, a="short", b="bm25")
    for kind in ("only-a", "only-b", "neither", "unjudged", "empty"):
        choose(page, "#show", kind)
        found = filtered(kind)
        number = f"{len(found)} of {QUERIES_COUNT}" if len(found) < QUERIES_COUNT else str(QUERIES_COUNT)
        assert page.locator("#shown").inner_text() == f"{number} queries"


def filtered(kind):
    """Queries that a filter keeps, of short and bm25."""
    found = []
    for query, judged in judgements().items():
        both = [rankings(name).get(query, []) for name in ("short", "bm25")]
        a, b = (any(judged.get(one, 0) > 0 for one in ranking) for ranking in both)
        top = any(ranking and ranking[0] not in judged for ranking in both)
        kinds = {"only-a": a and not b, "only-b": b and not a, "neither": not (a or b), "unjudged": top}
        if kinds.get(kind, not all(both)):
            found.append(query)
    return found


def test_a_query_without_results_and_no_query_are_said(page, folder):
    show(page, folder, a="short", b="bm25", q="q5")
    assert "short has no results" in page.locator(".ranking.of-a .message").inner_text()
    assert len(shown_ids(page, "b")) == 20
    find(page, "zzz")
    assert page.locator("#none").is_visible()
    assert page.locator("#shown").inner_text() == f"0 of {QUERIES_COUNT} queries"
    assert page.locator("#list").is_hidden()
    find(page, "")
    assert page.locator("#shown").inner_text() == f"{QUERIES_COUNT} queries"


def test_the_keyboard_alone_is_enough(page, folder):
    show(page, folder, a="short", b="bm25")
    order = ordered("short", "bm25")

    def tab_to(selector):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"{selector} cannot be reached")

    def press(key):
        page.keyboard.press(key)
        settle(page)

    tab_to("#a")
    tab_to("#counts button")
    press("Enter")
    assert page.evaluate("document.activeElement.matches('#counts button')")
    assert page.locator("#counts button").first.get_attribute("aria-pressed") == "true"
    press("Enter")
    tab_to("#histogram [role=button]")
    page.keyboard.press("ArrowRight")
    press("Enter")
    assert "difference" in page.url
    tab_to("#unpick")
    press("Enter")
    assert page.evaluate("document.activeElement.id") == "list"
    last = QUERIES_COUNT - 1
    for key, place in (("ArrowDown", 1), ("ArrowDown", 2), ("End", last), ("ArrowUp", last - 1), ("Home", 0)):
        press(key)
        assert page.locator("[aria-selected=true] .text").inner_text() == text_of_query(order[place])
        assert page.get_attribute("#list", "aria-activedescendant") == f"row-{place}"
        assert page.locator(f"#row-{place}").is_visible()
    tab_to("#query .bar button")
    for place in (1, 2):
        press("Enter")
        assert page.locator("h2").inner_text() == text_of_query(order[place])
    tab_to(".result button")
    page.keyboard.press("Enter")
    wait_for(page, "document.querySelector('[role=status]').textContent !== ''")


def downloaded(page, button):
    """Rows of the CSV file that a button gives."""
    with page.expect_download() as download:
        page.click(button)
    with open(download.value.path(), newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def test_what_is_seen_can_be_downloaded(page, folder):
    show(page, folder, a="bm25", b="short", q="q0")
    queries = downloaded(page, "#queries-csv")
    assert [row["query_id"] for row in queries] == [f"q{one}" for one in ordered("bm25", "short")]
    assert {row["query"] for row in queries if row["query_id"] == "q0"} == {HOSTILE}
    assert float(queries[0]["difference"]) == difference(ordered("bm25", "short")[0], "bm25", "short")
    # A spreadsheet would compute what begins like a formula.
    cells = page.evaluate("['=1+1', '+1', '-a', '@a', -0.5, 'a-b'].map((value) => harmless(value))")
    assert cells == ["'=1+1", "'+1", "'-a", "'@a", -0.5, "a-b"]
    results = downloaded(page, "text=CSV of both rankings")
    expected = [f"p{one}" for name in ("bm25", "short") for one in rankings(name)[0][:20]]
    assert [row["doc_id"] for row in results] == expected


def test_scripts_from_right_to_left_are_shown_so(page, folder):
    show(page, folder, q="q1")
    assert page.locator("h2").inner_text() == ARABIC
    assert page.evaluate("getComputedStyle(document.querySelector('h2')).direction") == "rtl"
    find(page, "عاصمة")
    assert listed(page) == [ARABIC]


@pytest.mark.parametrize("width", [400, 800, 1600])
def test_nothing_is_wider_than_the_window(page, folder, width):
    page.set_viewport_size({"width": width, "height": 900})
    show(page, folder, a=HOSTILE_NAME, b="bm25", q="q0")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 400:
        chosen = page.locator("#list [aria-selected=true]").get_attribute("aria-posinset")
        page.locator(f"#row-{int(chosen) - 2}").hover()
        page.mouse.down()
        # As if the list still rolled.
        page.evaluate("document.querySelector('#list').dispatchEvent(new Event('scroll'))")
        page.mouse.up()
        wait_for(page, "document.querySelector('#query').getBoundingClientRect().top < 50")


def test_a_folder_that_is_not_whole_says_so(context, folder, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "page")
    page = context.new_page()
    (broken / "data" / "values-1.js").unlink()
    (broken / "data" / "results-0.js").write_text('shard("results-0","AAAA");\n')
    show(page, broken, a="bm25", b="short", q="q0")
    assert "data/results-0.js cannot be read" in page.locator("#message").inner_text()
    choose(page, "#b", HOSTILE_NAME)
    assert "data/values-1.js cannot be read" in page.locator("#message").inner_text()
    # From the start on.
    show(page, broken, a=HOSTILE_NAME, b="short")
    assert "data/values-1.js cannot be read" in page.locator("#message").inner_text()
    choose(page, "#a", "bm25")
    assert page.locator("#list [role=option]").count() > 5
    (broken / "data" / "index.js").unlink()
    page.goto("about:blank")
    page.goto(f"{broken.as_uri()}/index.html")
    page.wait_for_selector("#message:not([hidden])")
    assert "data/index.js cannot be read" in page.locator("#message").inner_text()


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (390, "dark"),
        (1600, "light"),
        pytest.param(390, "light", marks=pytest.mark.exhaustive),
        pytest.param(1600, "dark", marks=pytest.mark.exhaustive),
    ],
)
def test_axe_finds_no_violation(page, folder, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{folder.as_uri()}/index.html")
    page.wait_for_selector(READY)
    page.evaluate(AXE)
    for wanted in ({"q": "q5", "a": "short", "b": "bm25"}, {"find": "zzz"}, {"q": "q0", "a": HOSTILE_NAME, "b": "no"}):
        page.evaluate("hash => { location.hash = hash; }", urlencode(wanted))
        settle(page)
        assert faults_of(page) == []


def test_nothing_is_cut_or_hidden_at_any_width(page, folder):
    for wanted in ({"q": "q5", "a": "short", "b": "bm25"}, {"q": "q0", "a": HOSTILE_NAME, "b": "bm25"}):
        show(page, folder, **wanted)
        assert [(width, one) for width in WIDTHS for one in cut_of(page, width)] == []


def test_queries_without_judgements_are_shown_without_measures(context, tmp_path):
    folder = written(tmp_path, judged=30)
    with seen(context, folder) as page:
        show(page, folder, a="bm25", b="short", show="unmeasured")
        assert page.locator("#shown").text_content() == f"{QUERIES_COUNT - 30} of {QUERIES_COUNT} queries"
        assert page.locator("#list [role=option] .difference").first.text_content() == "not judged"
        assert "This query has no judgements" in page.locator("#query").text_content()
        assert page.locator("#query .badge").count() == 0
        counts = map(int, page.locator("#counts b").all_text_contents())
        assert sum(counts) == 30
        assert page.locator("#means tbody tr").first.locator("td").first.text_content() == (
            f"{np.mean([one['RR@10'] for one in list(values('bm25').values())[:30]]):.3f}"
        )


def test_a_split_without_judgements_shows_what_rankings_have_in_common(context, tmp_path):
    folder = written(tmp_path, judged=0)
    tops = [[rankings(system).get(query, [])[:10] for system in ("bm25", "short")] for query in range(QUERIES_COUNT)]
    shares = [len({*a} & {*b}) / max(len(a), len(b)) for a, b in tops]
    same = [bool(a and b) and a[0] == b[0] for a, b in tops]
    alone = [[len({*one} - {*other}) for one, other in (pair[::step] for pair in tops)] for step in (1, -1)]
    with seen(context, folder) as page:
        show(page, folder, a="bm25", b="short")
        assert page.locator("#counts b").all_text_contents() == [str(sum(same)), str(QUERIES_COUNT - sum(same))]
        means = [float(one) for one in page.locator("#means td").all_text_contents()]
        assert means[:2] == pytest.approx([np.mean(one) for one in (shares, same)], abs=0.00051)
        assert means[2:] == pytest.approx([np.mean(one) for one in alone], abs=0.051)
        assert listed(page)[0] == text_of_query(min(range(QUERIES_COUNT), key=shares.__getitem__))
        choose(page, "#sort", "against")
        assert listed(page)[0] == text_of_query(max(range(QUERIES_COUNT), key=shares.__getitem__))
        assert "no judgements" in page.locator("#overview").text_content()
        assert not page.locator("#measure").is_visible()
        own = {row["query"]: row for row in downloaded(page, "#queries-csv")}
        assert [*own[""]] == ["query_id", "query", "overlap@10", "same_first_passage", "alone_a", "alone_b"]
        for query, expected in enumerate(zip(shares, *alone, strict=True)):
            row = own[text_of_query(query)]
            found = [float(row[name]) for name in ("overlap@10", "alone_a", "alone_b")]
            assert found == pytest.approx(expected)
        settle(page)
        assert len(shown_ids(page, "a")) == 20


def test_documents_are_shown_by_the_passage_that_counted(context, tmp_path):
    folder, grouped = written(tmp_path, documents=True), {}
    for name in ("bm25", "short"):
        documents = grouped[name] = {}
        for rank, passage in enumerate(rankings(name)[7], 1):
            documents.setdefault(passage // 4, []).append((rank, passage))
    with seen(context, folder) as page:
        show(page, folder, a="bm25", b="short", q="q7")
        for side, name in (("a", "bm25"), ("b", "short")):
            rows = []
            for document, passages in grouped[name].items():
                about = ", ".join(f"{passage % 4} (rank {rank})" for rank, passage in passages[:3])
                rows.append((f"d{document}", about + (" and 1 more" if len(passages) == 4 else "")))
            assert any("more" in about for _, about in rows)
            assert shown_ids(page, side) == [f"{document} \N{MIDDLE DOT} passage {about}" for document, about in rows]
            texts = page.locator(f".ranking.of-{side} .passage").all_inner_texts()
            first = [text_of_passage(passages[0][1]) for passages in grouped[name].values()]
            assert [text[:20] for text in texts] == [text[:20] for text in first]
            assert page.locator(f".ranking.of-{side} .relevant .doc").count() == 1
        common = grouped["bm25"].keys() & grouped["short"].keys()
        assert page.locator(".moves path").count() == len(common)
        assert "relevant document" in page.locator(".relevant-passages caption").inner_text()
        assert page.locator(".relevant-passages tbody th").first.inner_text() == "d1"
        page.locator(".ranking.of-a .result button:has-text('Copy')").first.click()
        line = f"q7 Q0 d{next(iter(grouped['bm25']))} 1 {score(1):g} bm25"
        wait_for(page, f"document.getElementById('status').textContent.includes({line!r})")
