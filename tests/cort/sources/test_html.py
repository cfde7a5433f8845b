"""Text of HTML pages, also of broken and hostile ones."""

import time

import pytest

from cort.sources import html
from cort.sources.documents import outline

CODE = "<script>var evil = '<p>evil</p>'</script><style>.evil {}</style>"


def text_of(page):
    return " ".join(" ".join(text for _, text in html.read(page).blocks).split())


def test_titles_headings_blocks_and_rows():
    page = """<!DOCTYPE html><html><head><title>The &amp; title</title></head><body>
        <nav><a href="/">Menu</a></nav><header>Logo</header><aside>Related</aside>
        <h1>First <em>level</em></h1>Loose text<p>a<b>b</b>c<br>d<!-- comment -->
        <ul><li>one<li>two</ul><table><tr><th>x</th><th>y</th></tr><tr><td>1<td>2</table><h3>Third</h3><pre>code</pre>
        <footer>Imprint</footer></body></html>"""
    content = html.read(page)
    assert content.title == "The & title"
    assert [(level, " ".join(text.split())) for level, text in content.blocks if text.strip()] == [
        *[(0, "Logo"), (0, "Related"), (1, "First level"), (0, "Loose text"), (0, "abc d"), (0, "one"), (0, "two")],
        *[(0, "x y"), (0, "1 2"), (3, "Third"), (0, "code"), (0, "Imprint")],
    ]
    assert content.left == (("navigation", "Menu"),)


@pytest.mark.parametrize(
    ("page", "title"),
    [
        # As Sphinx, Docusaurus, WordPress, pandoc and a page of several sections.
        ("<title>sqlite3 — 3.12 documentation</title><h1>sqlite3<a class=headerlink>¶</a></h1><p>a", "sqlite3"),
        ("<title>Use | Site</title><header>Site</header><article><header><h1>Use</h1></header>a</article>", "Use"),
        ("<title>Post - Blog</title><header><h1>Blog</h1></header><main><h1><a>Post</a></h1><p>a</main>", "Post"),
        ("<title>Paper</title><header><h1>Paper</h1></header><h1>1 Aim</h1><p>a<h1>2 Method</h1><p>b", "Paper"),
        ("<title></title>text<h1>One</h1><h1>Two</h1>", "One"),
        # Such a title says more than the heading.
        ("<title>Bills | Shop</title><h1>Answers</h1>a", "Bills | Shop"),
        ("<title>Use on Linux - Shop</title><h1>Use</h1>a", "Use on Linux - Shop"),
        ("<title>add</title><h1>add(1) Manual</h1>a", "add(1) Manual"),
        ("<svg><title>Logo</title></svg>text<title>Page</title>", "Page"),
    ],
)
def test_the_title_is_the_only_heading_of_level_1_or_that_of_the_page(page, title):
    document = outline("d", html.read(page))
    assert document.title == title
    assert document.sections


# fmt: off
TEXTS = {
    "an empty title": ("<title></title>one <b>two</b> three", "one two three"),
    "a picture's title": ("<title>Page</title><svg><title>Logo</title><path></svg>text.<p>b</p>", "text. b"),
    "a button in a sentence": ("<p>Click <button>Save</button>.<div><button>Menu</button></div>b",
                               "Click Save. Menu b"),
    "a button in a heading": ("a<h3><button>Which?</button></h3>b", "a Which? b"),
    "a form around a page": (
        "<form><h1>Title</h1><p>Text.</p><select><option>Choice</select><button>Go</button></form>",
        "Title Text. Choice Go"),
    "fields": (
        "<label>Name</label><textarea>your name</textarea><input type=submit value=Send><input type=text value=no>",
        "Name your name Send"),
    "stray ends": ("</nav></script><p>a</p></nav><nav>menu</nav><p>b</p></aside>c", "a b c"),
    "a note, an abstract and a source": (
        "<header><h1>T</h1><p>abstract</p></header><aside>note</aside><blockquote>said<footer>she</footer></blockquote>",
        "T abstract note said she"),
    "questions and folded answers": (
        "<details><summary>Q1</summary>A1</details><div role=heading aria-level=3><button>Q2</button></div>"
        "<div hidden>A2</div><div aria-hidden=true>A3</div><div style='display:none'>A4</div>", "Q1 A1 Q2 A2 A3 A4"),
    "letters above and below": (
        "H<sub>2</sub>O 10<sup>6</sup> x<sup>n</sup> 1<sup>st</sup> word<sup><a href=#f>1</a></sup>",
        "H2O 10^6 xn 1st word 1"),
    "readings": ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp>字<rt>ji</rt></ruby>", "漢字 kanji"),
    "words that may be broken": ("long<wbr>word a<b>b</b>c", "longword abc"),
    "what pictures show": ("<img alt='A pump' src=a.png><svg><desc>no</desc><text>valve</text></svg>", "A pump valve"),
    "pages in pages": ("<iframe srcdoc='&lt;p>a&lt;/p>'>no</iframe><iframe src=x>no</iframe>b", "a b"),
    "frames": ("<frameset><frame src=a><noframes><body><p>a <b>b</b></body></noframes></frameset>", "a b"),
    "other names of the same tags": (
        "<?xml version='1.0'?><h:html xmlns:h='http://www.w3.org/1999/xhtml'><h:p>a</h:p><h:nav>no</h:nav>"
        "<p><![CDATA[b < c]]></p></h:html>", "a b < c"),
    "conditions": ("<![if !IE]>a<![endif]><!--[if IE]>no<![endif]-->b", "ab"),
    "a comment without end": ("<p>a<!-- b<p>c", "a b c"),
    "a tag without end": ("<p>a if b<c and d", "a if b<c and d"),
    "a title without end": ("<title>T<h1>a</h1><p>b</p>", "a b"),
    "terms": ("<dl><dt>term<dd>meaning</dl><figure><figcaption>c</figcaption></figure>", "term meaning c"),
    "formulas": ("<math><mi>x</mi><mo>=</mo><mfrac><mn>1</mn><mn>2</mn></mfrac></math>", "x = 1 2"),
    "a shadow": ("<x-a><template shadowrootmode=open>a</template></x-a><template>no</template>b", "a b"),
    "roles": ("<div ROLE=Navigation>no</div><form role='search'>no</form><div role=contentinfo>no</div>"
              "<div role=complementary>a</div><div role=note>b</div>", "a b"),
    "roles in a line": ("<p>a<span role=navigation>no</span>b <i role=heading>c</i></p>d", "a b c d"),
    "the one main": ("x<nav>no</nav><div role=MAIN>a<aside>b</aside><footer>c</footer></div><p>no", "a b c"),
    "a main in another": ("no<main>a<main>b</main>c</main>", "a b c"),
    "two mains": ("<nav>no</nav><main>a</main><main>b</main>c", "a b c"),
    "an empty main": ("<main> </main><p>a", "a"),
    "navigation that does not end before main": ("<nav><ul><li>no</ul><main><p>a</main>", "a"),
    "a notice": ("a<div class='Cookie-Banner'>We bake. <a>More</a><button>OK</button></div>b", "a b"),
    "sections and pages about notices": (
        "<body class=cookie-banner-open><section id=cookie-banner><h2>Banner</h2>How to <b>show</b> it.</section>",
        "Banner How to show it."),
    "links to headings": ("<ul><li><a href=#a>One</a><li><a href=#b>Two</a><li><a href=#c>Three!</a></ul>"
                          "<h2>One</h2>a<h2>Two</h2>b<h2>Three</h2>c", "One a Two b Three c"),
    "links to headings with other words": (
        "<ul><li><a href=#a>One</a><li><a href=#b>Two</a><li><a href=#c>Three</a></ul><h2>One</h2>a<h2>Two</h2>b",
        "One Two Three One a Two b"),
    "links to other pages": ("<link rel=prev href=a><link rel=next href=c title='The end'>"
                             "<p>Next: <a href=c>chapter c</a>, Up: <a href=u accesskey=u>top</a></p><p>The end</p>"
                             "<hr><p><a href=a>see</a></p>"
                             "<p>text</p><h2>Read <a href=d>this</a></h2><ul><li><a href=c>Next</a><li>end</ul>",
                             "text Read this"),
    "names of other pages beside words of links": (
        "<title>1.2. Name</title><table><tr><td><a accesskey=u href=u title='1. Part'>Up</a>"
        "<td>1. Part<td><a accesskey=h href=h>Home</a></table><p>text</p>"
        "<p>We go on with the <a accesskey=u href=u>next</a> part soon</p>", "text We go on with the next part soon"),
    "a value whose quote never ends": ("<p>one</p><p class=\"x>two</p><p title='>three</p> 1 < 2",
                                       "one two three 1 < 2"),
    "quotes of text": ('<p title="">a = "b</p><script>x="</script><p>c=\'d</p>', "a = \"b c='d"),
    "buttons side by side": ("<button>One</button><button>Two</button><p>in<b>side</b>", "One Two inside"),
    "nothing": ("<title></title><!-- nothing -->", ""),
    "an empty page": ("", ""),
}
# fmt: on


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_text_is_left_out_and_hides_nothing(name):
    page, text = TEXTS[name]
    assert text_of(page) == text


@pytest.mark.parametrize(
    "page",
    [
        f"<head>{CODE}</head><body><p>before{CODE}</p>{CODE}<p>after</p>",
        f"<p>before</p><div>{CODE}<svg>{CODE}</svg><iframe><p>evil</p></iframe></div><p>after</p>",
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


def test_invisible_characters_divide_no_word():
    document = outline("d", html.read("<title>Na\u0308he</title><p>Reise&shy;kosten a\u2060b \ufeffc</p>"))
    assert document.text == "N\u00e4he Reisekosten ab c"
