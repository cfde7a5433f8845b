import pytest

from cort.sources import markdown
from cort.sources.documents import Section, outline
from cort.sources.folder import Skips, iter_documents


def document_of(text):
    return outline("d", markdown.read(text))


def text_of(text):
    return " ".join(paragraph for section in document_of(text).sections for paragraph in section.paragraphs)


def test_blocks_of_all_kinds():
    document = document_of(
        """# The *title*

Intro `code` with [a link](http://x.y "t") and ![an image](a.png).
Second line\\
third line.

## Part

- item one
- item **two**
  goes on

| a | b |
|---|---|
| 1 | 2 |

### Inner ###

```python
def f(): return 1 < 2
```

> quoted

Underlined
----------

&copy; a<br>b <form> & c
"""
    )
    assert document.title == "The title"
    assert document.sections == (
        Section((), ("Intro code with a link and an image. Second line third line.",)),
        Section(("Part",), ("item one", "item two goes on", "a b", "1 2")),
        Section(("Part", "Inner"), ("def f(): return 1 < 2", "quoted")),
        Section(("Underlined",), ("© a b & c",)),
    )


TITLES = [
    ("---\ntitle: 'A: b'\nauthor: me\n---\n", "A: b"),
    ("---\ntitle: >-\n  A long\n  title\nauthor: me\n---\n", "A long title"),
    ("---\ntitle: |\n  A long\n  title\n---\n", "A long title"),
    ("---\ntitle: A long\n  title\n...\n", "A long title"),
    ("---\nTitle: 1.10\ntags: [a, {b: c}]\n---\n", "1.10"),
    ('+++\ntitle = """A long \\\n  title"""\n[extra]\nx = 1\n+++\n', "A long title"),
    ('{\n  "title": "A long title",\n  "draft": false\n}\n', "A long title"),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("front", "title"), TITLES)
def test_front_matter_gives_the_title_only(tmp_path, front, title, end):
    (tmp_path / "a.md").write_bytes(f"{front}\n# Heading\n\nText.\n".replace("\n", end).encode())
    (document,) = iter_documents(tmp_path, Skips())
    assert (document.title, document.sections) == (title, (Section(("Heading",), ("Text.",)),))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("---\n\nText.\n\n---\n\nMore.", "Text. More."),
        ("---\n\nNote: this.\n\n---\n\nMore.", "Note: this. More."),
        ("---\nJust a line\n---\nMore.", "Just a line More."),
        ("---\ntitle: [Draft] page\n---\nMore.", "title: [Draft] page More."),
        ("---\n- a\n- b\n---\nMore.", "a b More."),
        ("+++\nno toml\n+++\n\nMore.", "+++ no toml +++ More."),
        ('{\n"a": 1\n}\n\nMore.', '{ "a": 1 } More.'),
        ("---\ntitle: never closed\n\nMore.", "title: never closed More."),
    ],
)
def test_what_is_no_mapping_is_content(text, words):
    assert document_of(text).text == words


def test_what_is_left_out_is_told():
    text = "---\ntitle: T\nauthor: me\n---\n# H {#id}\n\na <!-- b --> <Foo/>\n\n[x]: http://y 'z'\n\n<!-- c -->\n"
    text += "\n<your-name>\n"
    assert [kind for kind, _ in markdown.read(text).left] == [
        *("front matter", "definitions of links", "attributes", "comments", "unknown tags", "comments"),
        "unknown tags",
    ]
    assert document_of(text).text == "T H a"


# fmt: off
WHOLE = {
    "tags alone": ("a\n\n<footer>\n\nb *c*\n\n<nav>\n\nd\n\n</main>\n\ne", "a b c d e"),
    "code that never ends": ("a\n\n<script>\n\nb *c*\n\n<style>\nd\n\n<pre>\n\ne", "a b c d e"),
    "comments that never end": ("a\n\n<!-- b\n\n*c*\n\n<!-- d\n\n<?php e\n\n<![CDATA[ f", "a b c d php e f"),
    "tags that hide what follows": (
        "<template>\na\n\n<iframe src=x>\nb\n\n<noscript>\nc\n\n<title>\nd\n\n<textarea>\ne", "a b c d e"),
    "text between tags": ("<div>\n<p>a <b>b</b></p>\n\n*c*\n\n</div>\n<table><tr><td>d</td><td>e</td></tr></table>",
                          "a b c d e"),
    "navigation as an example": ("<nav>a</nav>\n\n<main>b</main>\n\nc", "a b c"),
    "folds": ("<details>\n<summary>a</summary>\n\n*b*\n\n</details>", "a b"),
    "boxes of Notion": ("<aside>\n💡 a & b\n\n**c**\n</aside>\n\nd", "💡 a & b c d"),
    "boxes of MkDocs": ('!!! note "a"\n    b **c**\n\n    d [e](f)\n\n    - g\n\n???+ tip\n    h\n\ni',
                        "a b c d e g tip h i"),
    "tabs of MkDocs": ('=== "a"\n\n    *b*\n\n=== "c"\n\n    d\n\ne', "a b c d e"),
    "boxes of Docusaurus": (":::tip a *b*\n\nc\n\n:::\n\nd", "tip a b c d"),
    "boxes of MyST": ("```{admonition} a\n:class: no\nb **c**\n```\n\nd", "a b c d"),
    "components": ("import T from '@x/T';\n\n<T>\n<Item value='no' label='a'>\n\n*b*\n\n</Item>\n</T>", "a b"),
    "imports as text": ("import a from 'b'\n\nc", "import a from 'b' c"),
    "footnotes": ("a[^1] b[^n]\n\n[^1]: c\n\n[^n]: d *e*", "a[^1] b[^n] [^1]: c [^n]: d e"),
    "labels": ("[Note]: careful\n\n[a][b]\n\n[b]: c/d 'e'", "[Note]: careful a"),
    "cells beyond the header": ("| a | b |\n|---|---|\n| 1 \\| 2 | 3 | 4 *x* |\n| 5 |", "a b 1 | 2 3 4 x 5"),
    "tasks, links and stress": ("- [ ] a\n- [x] b\n\n~~c~~ <http://d> &copy;", "[ ] a [x] b c http://d ©"),
    "files of fences": ('```js title="a.js"\nb\n```\n\n~~~\nc', "a.js b c"),
    "what is not an attribute": ("Use {#a} or {b}\n\nc {: .d }", "Use {#a} or {b} c"),
    "deep quotes": (">" * 150 + " a\n\nb", ">" * 150 + " a b"),
    "pictures": ("![a *b*](c) <img src=d alt='e f'>", "a *b* e f"),
    "headings without text": ("# a\n\n## b\n\n## c\n\n### d\n\ne\n\n## f", "a b c d e f"),
}
# fmt: on


@pytest.mark.parametrize("name", WHOLE)
def test_every_word_that_is_seen_is_there(name):
    text, words = WHOLE[name]
    assert document_of(text).text == words


@pytest.mark.parametrize(
    "code",
    [
        "<script>evil()</script>",
        "x <script>evil(1 < 2)</script> y",
        "x <STYLE>.evil {}</STYLE> y",
        "<div>\n<style>\n.evil {}\n</style>\n</div>",
    ],
)
def test_scripts_and_styles_give_no_text(code):
    text = text_of(f"before\n\n{code}\n\nafter")
    assert "evil" not in text
    assert text.replace(" x y", "") == "before after"


def test_tags_that_are_placeholders_hide_nothing():
    assert text_of("Use <script> in <form> or </style>\n\nafter") == "Use in or after"


def test_code_that_shows_a_script_is_text():
    assert text_of("`<script>a</script>` and\n\n    <script>b</script>") == "<script>a</script> and <script>b</script>"
