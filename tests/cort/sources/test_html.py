"""Text of HTML pages, also of broken and hostile ones."""

import time

import pytest

from cort.sources import html
from cort.sources.documents import Content, outline

CODE = "<script>var evil = '<p>evil</p>'</script><style>.evil {}</style>"


def text_of(page):
    return " ".join(" ".join(text for _, text in html.read(page).blocks).split())


def test_titles_headings_blocks_and_rows():
    page = """<!DOCTYPE html><html><head><title>The &amp; title</title></head><body>
        <nav><a href="/">Menu</a></nav><header>Logo</header><aside>Related</aside>
        <h1>First <em>level</em></h1>Loose text<p>a<b>b</b>c<br>d<!-- comment -->
        <ul><li>one<li>two</ul><table><tr><th>x</th><th>y</th></tr><tr><td>1<td>2</table><h3>Third</h3><pre>code</pre>
        <footer>Imprint</footer></body></html>"""
    assert html.read(page.replace("h1", "h2")).title == "The & title"
    title, blocks, _ = html.read(page)
    assert title == ""
    assert [(level, " ".join(text.split())) for level, text in blocks if text.strip()] == [
        *[(1, "First level"), (0, "Loose text"), (0, "abc d"), (0, "one"), (0, "two"), (0, "x y"), (0, "1 2")],
        *[(3, "Third"), (0, "code")],
    ]


@pytest.mark.parametrize(
    ("page", "title"),
    [
        # As Sphinx, Docusaurus, WordPress, pandoc and a page of several sections.
        ("<title>sqlite3 — 3.12 documentation</title><h1>sqlite3<a class=headerlink>¶</a></h1><p>a", "sqlite3"),
        ("<title>Use | Site</title><header>Site</header><article><header><h1>Use</h1></header>a</article>", "Use"),
        ("<title>Post - Blog</title><header><h1>Blog</h1></header><main><h1><a>Post</a></h1><p>a</main>", "Post"),
        ("<title>Paper</title><header><h1>Paper</h1></header><h1>1 Aim</h1><p>a<h1>2 Method</h1><p>b", "Paper"),
        ("<title></title>text<h1>One</h1><h1>Two</h1>", "One"),
        ("<svg><title>Logo</title></svg>text<title>Page</title>", "Page"),
    ],
)
def test_the_title_is_the_only_heading_of_level_1_or_that_of_the_page(page, title):
    document = outline("d", html.read(page))
    assert document.title == title
    assert document.sections


TEXTS = {
    "an empty title": ("<title></title>one <b>two</b> three", "one two three"),
    "a picture's title": ("<title>Page</title><svg><title>Logo</title><path></svg>text.<p>b</p>", "text. b"),
    "a button in a sentence": ("<p>Click <button>Save</button>.<div><button>Menu</button></div>b", "Click Save. b"),
    "a button in a heading": ("a<h3><button>Which?</button></h3>b", "a Which? b"),
    "a form around a page": (
        "<form><h1>Title</h1><p>Text.</p><select><option>Choice</select><button>Go</button></form>",
        "Title Text.",
    ),
    "stray ends": ("</nav></script><p>a</p></nav><nav>menu</nav><p>b</p></aside>c", "a b c"),
    "nothing": ("<title></title><!-- nothing -->", ""),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_text_is_left_out_and_hides_nothing(name):
    page, text = TEXTS[name]
    assert text_of(page) == text


@pytest.mark.parametrize(
    "page",
    [
        f"<head>{CODE}</head><body><p>before{CODE}</p>{CODE}<p>after</p>",
        f"<p>before</p><div>{CODE}<svg><text>evil</text>{CODE}</svg><iframe><p>evil</p></iframe></div><p>after</p>",
        "<p>before</p><script><!-- <script>evil</script> --></script><p>after</p>",
        "<p onclick='evil()'>before</p><template><p>evil</p></template><noscript>evil</noscript><p>after</p>",
        "<p>before</p><textarea><script>evil</script></textarea><p>after</p>",
        "<p>before</p><SCRIPT SRC=x>evil</SCRIPT\n><p>after</p></script>",
        '<p>before</p><script src="x"/><p>after</p><script>//<![CDATA[\nevil("<p>")\n//]]></script>',
        "<p>before</p><p>after</p><script>evil = 1; <p>evil</p>",
    ],
)
def test_scripts_and_styles_give_no_text(page):
    assert text_of(page) == "before after"


def test_entities_of_a_document_are_not_expanded():
    levels = "".join(f'<!ENTITY e{level} "{f"&e{level - 1};" * 10}">' for level in range(1, 10))
    bomb = (
        f'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY e0 "boom">{levels}]><html><body><p>a &e9; b</p></body></html>'
    )
    assert len(text_of(bomb)) < 100
    assert "boom" not in text_of(bomb)
    other = '<!DOCTYPE html [<!ENTITY file SYSTEM "file:///etc/hostname">]><p>a &file; b</p>'
    assert text_of(other).endswith("a &file; b")


@pytest.mark.parametrize("tags", ["<div>", "<b>", "<ul><li>", "<table><tr><td>", "<p><blockquote>"])
def test_elements_that_a_page_forgets_to_close_are_fast(tags):
    tag = tags[1:].partition(">")[0]
    start = time.process_time()
    assert text_of(f"begin {tags * 5_000}middle{f'</{tag}>' * 5_000} end") == "begin middle end"
    assert text_of(f"begin {tags * 5_000}middle") == "begin middle"
    assert time.process_time() - start < 5


def test_long_text_stays_whole():
    words = "Grüße 文書 " * 1_000_000
    assert text_of(f"<p>{words}</p>") == words.strip()


def test_an_empty_page():
    assert html.read("") == Content("", [])
