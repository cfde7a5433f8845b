"""Text of reStructuredText."""

import pytest

from cort.sources import rst
from cort.sources.documents import Section, outline


def document_of(text):
    return outline("d", rst.read(text))


def text_of(text):
    return " ".join(paragraph for section in document_of(text).sections for paragraph in section.paragraphs)


def test_blocks_of_all_kinds():
    document = document_of(
        """
=====
Title
=====

Intro with ``code``, *stress*, :func:`os.path <x.y>`, :class:`~a.B`, `link <http://x>`_ and |sub|.

.. |sub| replace:: replacement
.. a comment

Part
====

.. note:: A note.

.. versionadded:: 3.1
   New.

.. function:: f(x)

   Does f.

Inner
-----

.. code-block:: python

   x = 1

.. toctree::

   other

* one
* two

==== ===
a    b
==== ===
1    2
==== ===

:field: body
"""
    )
    assert document.title == "Title"
    assert document.sections == (
        Section((), ("Intro with code, stress, os.path, a.B, link and replacement.",)),
        Section(("Part",), ("A note.", "3.1 New.", "f(x)", "Does f.")),
        Section(("Part", "Inner"), ("x = 1", "one", "two", "a b", "1 2", "field body")),
    )


def test_a_single_section_in_a_section_is_no_subtitle():
    document = document_of("Title\n=====\n\nPart\n----\n\nText.\n")
    assert (document.title, document.sections) == ("Title", (Section(("Part",), ("Text.",)),))


def test_a_page_of_several_sections_is_named_after_the_first():
    document = document_of("One\n===\n\nText.\n\nTwo\n===\n\nMore.\n")
    assert document.title == "One"
    assert document.sections == (Section((), ("Text.",)), Section(("Two",), ("More.",)))


@pytest.mark.parametrize(
    "directive",
    [
        ".. include:: {}",
        ".. raw:: html\n   :file: {}",
        ".. raw:: html\n\n   <script>secret</script>",
        ".. csv-table:: x\n   :file: {}",
        ".. literalinclude:: {}",
    ],
)
def test_no_other_file_and_no_code_is_read(tmp_path, directive):
    (tmp_path / "other").write_text("secret")
    text = text_of(f"before\n\n{directive.format(tmp_path / 'other')}\n\nafter")
    assert "secret" not in text
    assert text.startswith("before")
    assert text.endswith("after")


def test_mistakes_keep_the_text(capfd):
    text = text_of("Title\n==\n\n`open\n\n**bold\n\n.. note:\n\n:role:`x` |nothing| link_\n\n.. figure::\n\n   caption")
    assert all(word in text for word in ("open", "bold", "x", "link", "caption"))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "text", ["* .. oddity:: a\n", ".. oddity :: a", "x :Oddity:`a` `b`:oddity:", "+---+\n| .. oddity:: a\n"]
)
def test_other_files_change_nothing(text):
    alone = rst.read(text.replace("ddity", "ther"))
    rst.read(".. oddity:: a\n\n:oddity:`b`\n\n.. role:: oddity(strong)\n\n.. default-role:: oddity\n")
    assert repr(rst.read(text)) == repr(alone).replace("ther", "ddity")


def test_names_of_unknown_directives_do_not_stay():
    assert text_of(".. strange:: Argument\n   :option: 1\n\n   Content.") == "Argument Content."
