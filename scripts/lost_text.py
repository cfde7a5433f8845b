"""Compare the text of documents in a folder with all their words, found by a second, simpler reader.

Of HTML, the other reader takes all text nodes but those of scripts, styles and pictures; of Markdown and
reStructuredText, the words of the file as it stands. Prints for each kind of file how many words only the other has,
what explains them (the kinds that the readers tell, and marks of the format), and the rest. Words are counted as often
as they occur.

With --content, an XPath of the elements that hold the content of a page, also which share of its words no document has,
and which share of the words of documents is not of it. Pages without such elements say nothing about either: their
words are counted apart. --manuals measures so the eleven manuals of `MANUALS`: FOLDER has each of Debian's packages
in a folder of its name, unpacked by `dpkg-deb -x`.

Usage: python -m scripts.lost_text --folder FOLDER [--content "//*[@role='main']"] [--files 40] [--seed 1]
       python -m scripts.lost_text --folder FOLDER --manuals --files 40
"""

from __future__ import annotations

import random
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from statistics import mean

from lxml import etree

from cort.sources import html, markdown, rst
from cort.sources.documents import Content, outline
from cort.sources.folder import PAGES, list_files
from cort.sources.furniture import Repeats, content_of
from scripts.bench.common import parse

Words = Counter[str]

READERS = {".md": markdown.read, ".markdown": markdown.read, ".mdx": markdown.read, ".rst": rst.read}
UNSEEN = ("script", "style", "template", "svg")
SHOWN = 20
# Where the pages of a package are below usr/share/doc, and what holds their content.
MANUALS = {
    "git-doc": ("git-doc", "//*[@id='header' or @id='content']"),
    "postgresql-doc-15": ("postgresql-doc-15/html", "//body/div[not(@class='navheader' or @class='navfooter')]"),
    "python3.11-doc": ("python3.11/html", "//*[@role='main']"),
    "python-django-doc": ("python-django-doc/html", "//*[@id='yui-main']"),
    "nodejs-doc": ("nodejs/api", "//*[@id='apicontent']"),
    "debian-policy": ("debian-policy/policy.html", "//*[@role='main']"),
    "debian-handbook": ("debian-handbook/html/en-US", "//body/*[not(self::ul or @id='title' or @id='banner')]"),
    "octave-doc": (
        "octave/octave.html",
        "//body/div[not(@class='header')]/*[not(@class='header' or @class='nav-panel')]",
    ),
    "rust-doc": ("rust-doc/html/book", "//main"),
    "sphinx-doc": ("sphinx-doc/html", "//*[@role='main']"),
    "mkdocs-doc": ("mkdocs/html", "//*[@role='main']"),
}
_WORD = re.compile(r"\w+")
_ESCAPED = re.compile(r"\\([^\w\s]|_)")
# Marks that are no text of a file.
MARKS = {
    "addresses": re.compile(r"\]\([^()]*\)|\]\[[^\]]*\]|^ *\[[^\]]*\]:.*|<[^<>`]*>(?=`)", re.MULTILINE),
    "tags": re.compile(r"<[^<>]*>"),
    "names and options of blocks": re.compile(r"^[ >]*(?:```|~~~|\.\. ).*|^ +:[\w -]+:.*", re.MULTILINE),
    "roles": re.compile(r":[\w.+:-]+:(?=`)"),
}


@dataclass
class Measured:
    """Words of the content of pages, how many of them no document has; words of documents, how many of them are others.

    :ivar pages, elsewhere: pages without the elements of the content, and the words of their documents.
    """

    content: int = 0
    lost: int = 0
    read: int = 0
    foreign: int = 0
    pages: int = 0
    elsewhere: int = 0

    def add(self, elements: list[etree._Element], ours: Words) -> None:
        """Compare the document of a page with the elements that hold its content."""
        if not elements:
            self.pages, self.elsewhere = self.pages + 1, self.elsewhere + ours.total()
            return
        inner = words_of(" ".join(nodes_of(one) for one in elements if not {*elements} & {*one.iterancestors()}))
        self.content, self.lost = self.content + inner.total(), self.lost + (inner - ours).total()
        self.read, self.foreign = self.read + ours.total(), self.foreign + (ours - inner).total()

    @property
    def shares(self) -> tuple[float, float]:
        """The shares of content that is lost, and of documents that is no content."""
        return self.lost / max(self.content, 1), self.foreign / max(self.read, 1)

    def __str__(self) -> str:
        lost, foreign = self.shares
        found = (
            f"{self.content:,} words of content, {lost:.4f} lost; {self.read:,} of documents, {foreign:.4f} no content"
        )
        return f"{found}; {self.pages} pages without its element, {self.elsewhere:,} words"


@dataclass
class Kind:
    """Files of a suffix: words of the other reader, how many of those that are lost have which cause, and the rest."""

    files: int = 0
    words: int = 0
    explained: Words = field(default_factory=Counter)
    lost: Words = field(default_factory=Counter)
    places: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, theirs: Words, ours: Words, causes: Iterable[tuple[str, Words]]) -> None:
        """Explain the words of a file that no document has; a word has the first cause that fits."""
        self.files += 1
        self.words += theirs.total()
        rest = theirs - ours
        for cause, words in causes:
            self.explained[cause] += (rest & words).total()
            rest -= words
        self.lost += rest
        self.places |= {word: path for word in rest if word not in self.places}

    def lines(self, suffix: str) -> Iterable[str]:
        """Describe this for people."""
        causes = ", ".join(f"{count:,} {cause}" for cause, count in sorted(self.explained.items()) if count)
        yield f"{suffix}: {self.files} files, {self.words:,} words; {causes or 'nothing'} left out; "
        yield f"    {self.lost.total():,} unexplained ({self.lost.total() / max(self.words, 1):.4f})"
        for word, count in self.lost.most_common(SHOWN):
            yield f"    {word} {count} (first in {self.places[word]})"


def words_of(text: str) -> Words:
    """Count words, ignoring case."""
    return Counter(_WORD.findall(text.casefold()))


def nodes_of(element: etree._Element) -> str:
    """Join the texts of an element and all in it; those of blocks are apart."""
    parts, skipped = list[str](), 0
    for event, node in etree.iterwalk(element, events=("start", "end", "comment", "pi")):
        is_tag = isinstance(node.tag, str)
        space = " " * (is_tag and (node.tag not in html.INLINE or node.tag in html.SPACES))
        if event == "start":
            skipped += node.tag in UNSEEN
            parts.append(space if skipped else f"{space}{node.text or ''}")
        else:
            skipped -= is_tag and node.tag in UNSEEN
            parts.append(space)
            if not skipped and node is not element:
                parts.append(node.tail or "")
    return "".join(parts)


def tree_of(text: str) -> etree._Element:
    """Parse a page as a tree."""
    return etree.fromstring(text.encode("utf-8", "replace") or b" ", etree.HTMLParser(encoding="utf-8", huge_tree=True))


def causes_of(content: Content, text: str, is_page: bool) -> Iterable[tuple[str, Words]]:
    """Return what a reader left out, by kind, and for other files than pages what the marks of their format hold."""
    kinds: dict[str, Words] = {}
    for kind, left in content.left:
        kinds.setdefault(kind, Counter()).update(words_of(left))
    yield from kinds.items()
    for name, mark in () if is_page else MARKS.items():
        yield name, words_of(" ".join(match[0] for match in mark.finditer(text)))


def compare(folder: Path, paths: list[str], content: str) -> tuple[dict[str, Kind], Measured]:
    """Read files with both readers; without an XPath of the content, nothing is measured."""
    texts = {path: (folder / path).read_text("utf-8", "replace") for path in paths}
    pages = {path: html.parse(text) for path, text in texts.items() if path.lower().endswith(PAGES)}
    kinds, measured, repeats = dict[str, Kind](), Measured(), Repeats()
    for path, page in pages.items():
        repeats.add(path, page)
    for path, text in texts.items():
        suffix = Path(path).suffix.lower()
        found = content_of(pages[path], repeats.of(path)) if path in pages else READERS[suffix](text)
        ours = words_of(outline(path, found).text)
        theirs = words_of(nodes_of(tree_of(text)) if path in pages else _ESCAPED.sub(r"\1", unescape(text)))
        causes = [*causes_of(found, text, path in pages)]
        if path in pages:
            causes.append(("titles that are headings", words_of(pages[path].title)))
        kinds.setdefault(suffix, Kind()).add(path, theirs, ours, causes)
        if content and path in pages:
            measured.add(tree_of(text).xpath(content), ours)
    return kinds, measured


def sample(folder: Path, files: int, seed: int) -> list[str]:
    """Choose files that both readers read, or take all."""
    suffixes = (*PAGES, *READERS)
    paths = [file.path for file in list_files(folder) if file.path.lower().endswith(suffixes)]
    return sorted(random.Random(seed).sample(paths, min(files, len(paths)))) if files else paths  # noqa: S311


def lines_of(options: Namespace) -> Iterable[str]:
    """Measure one folder, or all manuals with their means."""
    if not options.manuals:
        kinds, measured = compare(options.folder, sample(options.folder, options.files, options.seed), options.content)
        for suffix, kind in sorted(kinds.items()):
            yield from kind.lines(suffix)
        yield from (str(measured),) if options.content else ()
        return
    shares = []
    for package, (place, content) in MANUALS.items():
        folder = options.folder / package / "usr/share/doc" / place
        _, measured = compare(folder, sample(folder, options.files, options.seed), content)
        shares.append(measured.shares)
        yield f"{package}: {measured}"
    for name, values in zip(("content lost", "no content"), zip(*shares, strict=True), strict=True):
        yield f"{name}: mean {mean(values):.4f}, most {max(values):.4f}"


def main() -> None:
    """Sample files and print what is found."""
    options = parse(__doc__, folder=Path, content="", manuals=False, files=0, seed=1)
    sys.stdout.writelines(f"{line}\n" for line in lines_of(options))


if __name__ == "__main__":
    main()
