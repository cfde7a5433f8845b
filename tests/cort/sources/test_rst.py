import time

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


@pytest.mark.parametrize(
    ("text", "title", "sections"),
    [
        ("Title\n=====\n\nPart\n----\n\nText.\n", "Title", (Section(("Part",), ("Text.",)),)),
        # A page of several sections is named after the first.
        ("One\n===\n\nText.\n\nTwo\n===\n\nMore.\n", "One", (Section((), ("Text.",)), Section(("Two",), ("More.",)))),
    ],
)
def test_a_single_section_in_a_section_is_no_subtitle(text, title, sections):
    document = document_of(text)
    assert (document.title, document.sections) == (title, sections)


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


def test_only_comments_targets_and_names_are_left_out():
    content = rst.read(
        """..

   quoted words

.. a comment
   of two lines

..
   another

.. |pump| image:: pump.png
   :alt: big pump
.. |copy| unicode:: 0xA9
.. _place: http://x.y

See |pump| and |copy| here, a\\*b. \\*raw\\* file\\_name *x*\\ s.

.. math:: x = y

.. figure:: a.png
   :alt: seen
   :width: 3

   caption

.. csv-table:: Prices
   :header: "item", "price"

   nut, 3

.. toctree::
   :caption: Parts

   The first <one>
   two

.. raw:: html

   <p>kept <b>html</b></p>

.. raw:: latex

   dropped

Code::

   f(*a, *b) |x| `y` name_

   * z

end
"""
    )
    seen = """quoted words See big pump and \u00a9 here, a*b. *raw* file_name xs. x = y seen caption Prices
        "item", "price" nut, 3 Parts
        The first kept html Code: f(*a, *b) |x| `y` name_ * z end"""
    assert set(" ".join(text for _, text in content.blocks).split()) == set(seen.split())
    left = {word for _, text in content.left for word in text.split()}
    assert {"comment", "lines", "another", "http://x.y", "two", "dropped"} <= left
    assert {kind for kind, _ in content.left} == {"comments", "targets", "directives without text"}


def test_mistakes_keep_the_text(capfd):
    text = text_of("Title\n==\n\n`open\n\n**bold\n\n.. note:\n\n:role:`x` |nothing| link_\n\n.. figure::\n\n   caption")
    assert all(word in text for word in ("open", "bold", "x", "link", "caption"))
    assert capfd.readouterr() == ("", "")


def test_the_markup_of_sphinx_and_programs_stays_apart():
    text = """.. sectnum::

Title
=====

Use ``[Debug|Release]`` or [a|b|c], ``__init__`` and __str__, a_name, `the manual
<manual_page>`_ and Python_. Footnote [1]_.

.. [1] Below.
.. _target: http://x.y

.. option:: -c COUNT
   :name: c

   .. tip:: Nested *text*::

      code_ **kwargs
"""
    paragraphs = document_of(text).sections[0].paragraphs
    assert paragraphs == (
        "Use [Debug|Release] or [a|b|c], __init__ and __str__, a_name, the manual and Python. Footnote [1].",
        *("Below.", "-c COUNT", "Nested text:", "code **kwargs"),
    )


@pytest.mark.parametrize(
    "text", ["a.b-" * 50_000, "*a `" * 50_000, "x" * 200_000 + "\n", ".. a::\n  " * 5000, "=\n" * 50_000]
)
def test_time_grows_with_the_length(text):
    start = time.process_time()
    rst.read(f"{text}\n\nText.\n")
    assert time.process_time() - start < 5
