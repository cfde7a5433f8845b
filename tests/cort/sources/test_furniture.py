"""What pages of a folder share, and nothing else, is no text of theirs."""

import pytest

from cort.formats.fields import encoded_id
from cort.sources.folder import Skips, iter_documents


def read(folder, pages, **options):
    """Words of documents by path, and what was counted."""
    for name, page in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(page, encoding="utf-8")
    skips = Skips()
    found = {one.doc_id: one for one in iter_documents(folder, skips, **options)}
    return {name: found[encoded_id(name)].text for name in pages if encoded_id(name) in found}, skips


def page(number, start="", end="", title=""):
    """A page with words of its own, also in links."""
    see = f"<ul><li><a href=x>see{number}</a><li><a href=y>also{number}</a></ul>"
    return f"<title>{title}</title>{start}<h1>Name{number}</h1><p>Text{number}.</p>{see}{end}"


def own(number):
    return f"Name{number} Text{number}. see{number} also{number}"


MENU = "<div><ul><li><a href=a>Home</a><li><a href=b>Guide</a><li><a href=c>Search site</a></ul></div>"
FOOT = "<footer><p>All rights reserved</p></footer>"


@pytest.mark.parametrize("processes", [1, 2])
def test_menus_and_footers_that_repeat_go(tmp_path, processes):
    pages = {f"{number:02}.html": page(number, MENU, MENU + FOOT) for number in range(12)}
    pages["90.html"] = page(90, "<p><a href=a>Home</a> is where we start today</p>")
    found, skips = read(tmp_path, pages, processes=processes)
    assert found == {f"{number:02}.html": own(number) for number in range(12)} | {
        "90.html": own(90).replace(" ", " Home is where we start today ", 1)
    }
    assert skips.words == {"repeated links": 12 * 2 * 4, "repeated edge": 12 * 3}
    assert skips.most == ("00.html", 11)
    assert skips.left_out() == {
        "words left out: repeated edge": 36,
        "words left out: repeated links": 96,
        "words left out: most, of '00.html'": 11,
    }


def test_a_menu_is_one_if_a_fifth_and_four_pages_have_it(tmp_path):
    few = {f"few/{number}.html": page(number, MENU) for number in range(3)}
    rare = {f"rare/{number}.html": page(number, MENU if number < 4 else "") for number in range(25)}
    found, _ = read(tmp_path, few | rare)
    menu = "Home Guide Search site"
    # There are seven on 28 pages: more than a fifth of all.
    assert found == {name: own(name.split("/")[1][:-5]) for name in few | rare}
    found, _ = read(tmp_path / "alone", few)
    assert found == {
        f"few/{number}.html": f"Name{number} {menu} Text{number}. see{number} also{number}" for number in range(3)
    }
    found, _ = read(tmp_path / "others", rare)
    assert [name for name, text in found.items() if menu in text] == [f"rare/{number}.html" for number in range(4)]


def test_the_pages_of_a_folder_in_a_folder_are_compared_too(tmp_path):
    menus = {f"a/{number}.html": page(number, MENU) for number in range(5)}
    others = {f"b/{number}.html": page(number) for number in range(100)}
    found, _ = read(tmp_path, menus | others)
    assert found == {name: own(name.split("/")[1][:-5]) for name in menus | others}


def test_repeated_blocks_that_are_content_stay(tmp_path):
    shared = "<p>Warning: mind the gap.</p><p><a href=z>See also</a></p>"
    pages = {f"{number}.html": page(number, end=f"{shared}<p>End{number}.</p>") for number in range(8)}
    found, skips = read(tmp_path, pages)
    # Two links in the middle are no menu.
    assert found == {
        f"{number}.html": f"{own(number)} Warning: mind the gap. See also End{number}." for number in range(8)
    }
    assert skips.words == {}


def test_a_main_without_text_below_its_heading_is_none(tmp_path):
    found, skips = read(tmp_path, {"a.html": "<main><h1>Title</h1></main><div>All words</div>"})
    assert (found, skips.words) == ({"a.html": "Title All words"}, {})


def test_in_a_main_navigation_that_repeats_goes(tmp_path):
    def inner(number):
        navigation = f"<nav>Home / Docs</nav><nav>Contents{number}</nav>"
        return f"{MENU}<main>{navigation}<p><a href=a>Word{number}</a></p>{FOOT}</main>"

    found, skips = read(tmp_path, {f"{number}.html": inner(number) for number in range(4)})
    assert found == {f"{number}.html": f"Contents{number} Word{number} All rights reserved" for number in range(4)}
    assert skips.words == {"outside main": 16, "repeated edge": 12}


@pytest.mark.parametrize(
    "pattern", ["{} — Site 3.2 documentation", "{} | Part | Site", "Site: {}", "Site - {}", "{} (Site (version 7))"]
)
def test_what_titles_share_is_in_no_passage(tmp_path, pattern):
    pages = {f"{number}.html": f"<title>{pattern.format(f'Own {number}')}</title><p>Text.</p>" for number in range(12)}
    pages["404.html"] = "<title>Not found</title><p>Text.</p>"
    found, skips = read(tmp_path, pages)
    assert found == {f"{number}.html": f"Own {number} Text." for number in range(12)} | {"404.html": "Not found Text."}
    assert [*skips.words] == ["name in titles"]


def test_words_that_titles_share_without_a_mark_stay(tmp_path):
    pages = {f"{number}.html": f"<title>Release notes {number} for all</title><p>Text.</p>" for number in range(12)}
    assert read(tmp_path, pages)[0] == {
        f"{number}.html": f"Release notes {number} for all Text." for number in range(12)
    }


def test_a_title_that_all_share_gives_way_to_the_heading(tmp_path):
    found, _ = read(tmp_path, {f"{number}.html": page(number, title="Site") for number in range(4)})
    assert found == {f"{number}.html": own(number) for number in range(4)}
