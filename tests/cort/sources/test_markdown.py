"""Text of Markdown."""

import pytest

from cort.sources import markdown
from cort.sources.documents import Section, outline


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


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("front", ["---\ntitle: 'A: b'\nauthor: me\n---\n", '+++\ndate = 1\ntitle = "A: b"\n+++\n'])
def test_front_matter_gives_the_title_only(tmp_path, front, end):
    from cort.sources.folder import Skips, iter_documents

    (tmp_path / "a.md").write_bytes(f"{front}\n# Heading\n\nText.\n".replace("\n", end).encode())
    (document,) = iter_documents(tmp_path, Skips())
    assert (document.title, document.sections) == ("A: b", (Section(("Heading",), ("Text.",)),))


def test_rules_are_no_front_matter():
    assert text_of("---\n\nText.\n\n---\n\nMore.") == "Text. More."


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
