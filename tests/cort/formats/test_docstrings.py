"""Docstrings by parsing: every definition, its qualified name, and files that are no valid Python."""

import ast

import pytest

from cort.formats.docstrings import Docstring, Source, iter_docstrings, parse_file

CODE = '''
"""Module summary
on two lines.

Module  body.

\tMore of it.
"""

class Outer:
    """Outer summary."""

    async def method(self):
        """Method summary.
          \t
        Method body."""

        def inner():
            "Inner summary.\\n\\nInner body."

    @property
    def value(self):
        """Get."""

    @value.setter
    def value(self, new):
        """Set."""

    class Nested:
        def undocumented(self): ...

        def documented(self):
            """Deep."""

if True:
    def branch(): "First."
elif False:
    def branch(): "Second."
else:
    def branch(): b"No docstring."

try:
    pass
except ValueError:
    def handler(): "In a handler."

match 1:
    case 1:
        def matched(): "In a case."

with open("x"):
    for _ in ():
        while True:
            def deep(): """
            """
            def half(): "Half \\ud800 character."
'''


def test_docstrings_of_every_definition_in_source_order():
    assert list(iter_docstrings("pkg/a.py", ast.parse(CODE))) == [
        Docstring("pkg/a.py", "Module summary on two lines.", "Module body. More of it."),
        Docstring("pkg/a.py:Outer", "Outer summary.", ""),
        Docstring("pkg/a.py:Outer.method", "Method summary.", "Method body."),
        Docstring("pkg/a.py:Outer.method.inner", "Inner summary.", "Inner body."),
        Docstring("pkg/a.py:Outer.value", "Get.", ""),
        Docstring("pkg/a.py:Outer.value#2", "Set.", ""),
        Docstring("pkg/a.py:Outer.Nested.documented", "Deep.", ""),
        Docstring("pkg/a.py:branch", "First.", ""),
        Docstring("pkg/a.py:branch#2", "Second.", ""),
        Docstring("pkg/a.py:handler", "In a handler.", ""),
        Docstring("pkg/a.py:matched", "In a case.", ""),
        Docstring("pkg/a.py:half", "Half ? character.", ""),
    ]


@pytest.mark.parametrize("content", [b"def f(:\n", b"\x00", b"# coding: nonsense\n", b"'\xff'\n", b"(" * 5000])
def test_invalid_python_is_none(tmp_path, content):
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    assert parse_file(Source("bad.py", str(path), "p")) is None


def test_other_encodings_are_read_as_declared(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes('# coding: latin-1\n"""Café."""\n'.encode("latin-1"))
    assert parse_file(Source("latin.py", str(path), "p")) == [Docstring("latin.py", "Café.", "")]


def test_long_elif_chain_needs_no_recursion():
    chain = "if x == 0: pass\n" + "".join(f"elif x == {n}: pass\n" for n in range(1, 90))
    module = ast.parse(chain + "else:\n  def f(): 'Found.'\n")
    # Each elif nests once more; grafting one chain into the other stands for a generated file of any length.
    for _ in range(30):
        wrapper = ast.parse(chain + "else:\n  pass\n")
        last = wrapper.body[0]
        while isinstance(last.orelse[0], ast.If):
            last = last.orelse[0]
        last.orelse = module.body
        module = wrapper
    assert list(iter_docstrings("a.py", module)) == [Docstring("a.py:f", "Found.", "")]
