"""Compare the text of documents in a folder with all their words, found by a second, simpler reader.

Of HTML, the other reader takes all text nodes but those of scripts, styles and pictures; of Markdown and
reStructuredText, the words of the file as it stands. Prints for each kind of file how many words only the other has,
what explains them (the kinds that the readers tell, and marks of the format), and the rest. Words are counted as often
as they occur.

With --content, an XPath of the elements that hold the content of a page, also which share of its words no document has,
and which share of the words of documents is not of it.

Usage: python -m scripts.lost_text --folder FOLDER [--content "//*[@role='main']"] [--files 40] [--seed 1]
"""

from __future__ import annotations

import random
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

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


def compare(folder: Path, paths: list[str], content: str) -> Iterable[str]:
    """Read files with both readers."""
    texts = {path: (folder / path).read_text("utf-8", "replace") for path in paths}
    pages = {path: html.parse(text) for path, text in texts.items() if path.lower().endswith(PAGES)}
    kinds, repeats = dict[str, Kind](), Repeats()
    in_content = lost = read = foreign = 0
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
            elements = tree_of(text).xpath(content)
            inner = words_of(" ".join(nodes_of(one) for one in elements if not {*elements} & {*one.iterancestors()}))
            in_content, lost = in_content + inner.total(), lost + (inner - ours).total()
            read, foreign = read + ours.total(), foreign + (ours - inner).total()
    for suffix, kind in sorted(kinds.items()):
        yield from kind.lines(suffix)
    if content:
        yield f"content: {in_content:,} words, lost {lost / max(in_content, 1):.4f}"
        yield f"documents: {read:,} words, not of the content {foreign / max(read, 1):.4f}"


def main() -> None:
    """Sample files and print what is found."""
    options = parse(__doc__, folder=Path, content="", files=0, seed=1)
    suffixes = (*PAGES, *READERS)
    paths = [file.path for file in list_files(options.folder) if file.path.lower().endswith(suffixes)]
    if options.files:
        paths = sorted(random.Random(options.seed).sample(paths, min(options.files, len(paths))))  # noqa: S311
    sys.stdout.writelines(f"{line}\n" for line in compare(options.folder, paths, options.content))


if __name__ == "__main__":
    main()
