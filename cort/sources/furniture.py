"""What of an HTML page is no part of its text: its furniture.

| kind                 | what goes                                                                                     |
|----------------------|-----------------------------------------------------------------------------------------------|
| navigation           | `<nav>`, and the roles of a whole site                                                        |
| outside main         | all but the one `<main>`                                                                      |
| table of contents    | three links or more to headings of the same page, with the texts of these                     |
| links between pages  | at a page's start or end, links to what the page calls previous, next, up, contents and so on |
| repeated links       | in three blocks or more, or at a page's start or end, links that many pages of a folder have  |
| repeated edge        | what many pages of a folder have in the header or footer of the page, or in `<nav>` of a main |
| name in titles       | what almost all titles of a folder begin or end with                                          |
| cookie notice        | a short block with a button that calls itself so                                              |

Links are looked for in pages without a single `<main>`. Many pages are a fifth, and four at least, of those in
the folder of the page or in one above it. Titles count if nine in ten share it.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby, product
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from cort.sources.documents import PERMALINKS, Content, Left

FEWEST, RUN = 4, 3
NAMES, LINKS = 1, 2
SHARE, SHARE_OF_TITLES = 0.2, 0.9
# Of `rel`: pages that a page names as its neighbours. <link rel="canonical"> and others name something else.
NEIGHBOURS = frozenset(["prev", "previous", "next", "up", "start", "home", "first", "last", "top", "contents", "toc"])
NEIGHBOURS |= frozenset(["index", "search", "glossary"])
KEYS = frozenset("npuh")
_WORDS = re.compile(r"\w+")
# Between the name of a page and that of its site: "a — b", "a: b", "a (b)".
_CUT = re.compile(r"\s+[\u2014\u2013|·•:»«\u203a\u2039>/~-]+\s+|:\s+|\s+(?=\()")


class Block(NamedTuple):
    """A block as it stands in a page.

    :ivar level: of a heading, or 0.
    :ivar kind: of furniture, or "".
    :ivar main: number of the `<main>` around it, or 0.
    :ivar linked: how many of its words are links or buttons.
    :ivar is_edge: whether it is in the header or footer of the page.
    :ivar hrefs: where its links lead.
    """

    level: int
    text: str
    kind: str = ""
    main: int = 0
    linked: int = 0
    is_edge: bool = False
    hrefs: tuple[str, ...] = ()


class Piece(NamedTuple):
    """A block of a page's text.

    :ivar key: 0, or a number by which the same block is known on other pages.
    :ivar is_edge: whether it is furniture wherever it stands, if other pages have it.
    :ivar near: `LINKS` to neighbours of the page, nothing but `NAMES` of these, or 0.
    """

    level: int
    text: str
    key: int = 0
    is_edge: bool = False
    near: int = 0


class Page(NamedTuple):
    """A page without what it calls furniture itself; `title` is as browsers show it."""

    title: str
    pieces: tuple[Piece, ...]
    left: tuple[Left, ...]

    @classmethod
    def restored(cls, title: str, pieces: list[list[Any]], left: list[list[str]]) -> Page:
        """Restore a page from the lists that JSON makes of it."""
        return cls(title, tuple(map(Piece._make, pieces)), tuple((kind, text) for kind, text in left))


class Links:
    """The neighbours that a page names; `words` are those of their titles."""

    def __init__(self) -> None:
        self.hrefs, self.words = set[str](), set[str]()

    def add(self, attributes: Mapping[str, str]) -> None:
        """Keep the link of an element if it leads to a neighbour; manuals also say so by the keys that open it."""
        is_near = not NEIGHBOURS.isdisjoint(attributes.get("rel", "").lower().split())
        if "href" in attributes and (is_near or attributes.get("accesskey", "").lower() in KEYS):
            self.hrefs.add(attributes["href"])
            self.words |= _words(attributes.get("title", ""))


def pieces(blocks: list[Block], links: Links, title: str, left: list[Left]) -> Iterator[Piece]:
    """Leave out what the page itself shows to be furniture, and say of the rest what may be."""
    # Text below headings.
    if len({block.main for block in blocks if block.main and not block.level}) == 1:
        left += [(block.kind or "outside main", block.text) for block in blocks if not block.main]
        for block in filter(attrgetter("main"), blocks):
            is_edge = block.kind == "navigation"
            yield Piece(block.level, block.text, _key(" ".join(block.text.split())) if is_edge else 0, is_edge)
        return
    left += [(block.kind, block.text) for block in blocks if block.kind]
    blocks = [block for block in blocks if not block.kind]
    parts, kept = list[Piece](), list[Block]()
    for block, listed in zip(blocks, _listed(blocks), strict=True):
        if listed >= RUN:
            left.append(("table of contents", block.text))
            continue
        key = 0
        if block.is_edge or block.linked:
            words = block.text.split()
            key = _key(" ".join(words)) if block.is_edge or 2 * block.linked > len(words) else 0
        parts.append(Piece(block.level, block.text, key, block.is_edge))
        kept.append(block)
    if links.hrefs:
        _tell_near(parts, kept, links, links.words | _words(title))
    yield from parts


def _tell_near(parts: list[Piece], blocks: list[Block], links: Links, known: set[str]) -> None:
    """Set `near` of the pieces from both ends of a page on, as far as all may be links."""
    for numbers in (range(len(parts)), range(len(parts) - 1, -1, -1)):
        for number in numbers:
            near = _near(blocks[number], links, known)
            parts[number] = parts[number]._replace(near=near)
            if not (near or parts[number].key):
                break


def _listed(blocks: list[Block]) -> list[int]:
    """Return for each block how many in a row lead to headings of the page, or 0."""
    leads = [block.hrefs != () and all(href.startswith("#") for href in block.hrefs) for block in blocks]
    if sum(leads) < RUN:
        return [0] * len(blocks)
    headings = {_plain(block.text) for block in blocks if block.level}
    return [
        *_run_sizes(
            leads and not block.level and _plain(block.text) in headings
            for leads, block in zip(leads, blocks, strict=True)
        )
    ]


def _near(block: Block, links: Links, known: set[str]) -> int:
    """Say whether a block leads to neighbours, and half of its words are links or names, or is nothing but names."""
    if not block.hrefs:
        return NAMES * all(match[0].casefold() in known for match in _WORDS.finditer(block.text))
    if not links.hrefs.issuperset(block.hrefs):
        return 0
    words = _WORDS.findall(block.text.casefold())
    others = sum(word not in known for word in words)
    return LINKS * (2 * min(others, len(words) - block.linked) <= len(words))


def _run_sizes(flags: Iterable[bool]) -> Iterator[int]:
    """Yield for each flag how many set ones there are in its run, or 0."""
    for is_set, run in groupby(flags):
        size = len(list(run))
        yield from [size * is_set] * size


def content_of(page: Page, shared: frozenset[int] = frozenset()) -> Content:
    """Return the content of a page, without what it shares with others: keys of blocks, and of parts of titles."""
    left, kept = list(page.left), list[Piece]()
    is_shared = [piece.key in shared for piece in page.pieces]
    is_link = [is_one or piece.near == LINKS for is_one, piece in zip(is_shared, page.pieces, strict=True)]
    start, end = _edge(page.pieces, is_link), len(is_link) - _edge(page.pieces[::-1], is_link[::-1])
    for number, (piece, size) in enumerate(zip(page.pieces, _run_sizes(is_shared), strict=True)):
        if size and (piece.is_edge or size >= RUN):
            left.append(("repeated edge" if piece.is_edge else "repeated links", piece.text))
        elif not start <= number < end:
            left.append(("repeated links" if size else "links between pages", piece.text))
        else:
            kept.append(piece)
    title, others = _title(page.title, [piece.text for piece in kept if piece.level == 1], shared)
    left += [("name in titles", text) for text in others if text]
    return Content(title, [(piece.level, piece.text) for piece in kept], tuple(left))


def _title(title: str, headings: list[str], shared: frozenset[int]) -> tuple[str, list[str]]:
    """Return the title, or "" if it is the only heading of level 1, and what is left out of it.

    What a title says beyond the heading and the name of its site is kept.
    """
    others = list[str]()
    if _key(title, "=") in shared:
        title, others = "", [title]
    for _, end in reversed([*_cuts(title)]):
        if _key(title[:end], "<") in shared:
            title, others = title[end:], [title[:end]]
            break
    for start, _ in _cuts(title):
        if _key(title[start:], ">") in shared:
            title, others = title[:start], [*others, title[start:]]
            break
    if len(headings) == 1 and title:
        rest = _beyond(title, headings[0].rstrip(PERMALINKS))
        return (title, others) if rest is None else ("", [*others, rest])
    return title, others


def _beyond(title: str, heading: str) -> str | None:
    """Return what a title has beside the heading, "" if it says no more, or None if it is another text."""
    if _words(title) <= _words(heading):
        return ""
    for start, end in _cuts(title):
        before, after = title[:start], title[end:]
        if heading.casefold() in (before.casefold(), after.casefold()):
            return after if heading.casefold() == before.casefold() else before
    return None


def _edge(parts: Sequence[Piece], is_link: Sequence[bool]) -> int:
    """Count the pieces at the start that are links, with names between them."""
    count = 0
    for number, piece in enumerate(parts):
        if is_link[number]:
            count = number + 1
        elif piece.near != NAMES:
            break
    return count


def _cuts(title: str) -> Iterator[tuple[int, int]]:
    """Yield where the name of a page and that of its site may meet."""
    return (match.span() for match in _CUT.finditer(title))


class Repeats:
    """Counts what pages of a folder have, with eight bytes for each block that may be furniture."""

    def __init__(self) -> None:
        self._pages = Counter[str]()
        # By folder, and by the share of its pages from which on a key is shared.
        self._keys: dict[tuple[str, float], array[int]] = {}
        self._shared: dict[str, frozenset[int]] = {}

    def add(self, path: str, page: Page) -> None:
        """Count a page, by its path in the folder."""
        blocks = {piece.key for piece in page.pieces if piece.key}
        titles = {_key(page.title, "=")} if page.title else set[int]()
        for start, end in _cuts(page.title):
            titles |= {_key(page.title[:end], "<"), _key(page.title[start:], ">")}
        for folder in _folders(path):
            self._pages[folder] += 1
            self._keys.setdefault((folder, SHARE), array("Q")).extend(blocks)
            self._keys.setdefault((folder, SHARE_OF_TITLES), array("Q")).extend(titles)

    def of(self, path: str) -> frozenset[int]:
        """Return the keys that a page shares with others, after all were counted."""
        folders = _folders(path)
        if folders[-1] not in self._shared:
            found = set[int]()
            for folder, share in product(folders, (SHARE, SHARE_OF_TITLES)):
                keys, counts = np.unique(np.frombuffer(self._keys[folder, share], np.uint64), return_counts=True)
                found.update(keys[counts >= max(FEWEST, share * self._pages[folder])].tolist())
            self._shared[folders[-1]] = frozenset(found)
        return self._shared[folders[-1]]


def _folders(path: str) -> list[str]:
    """Return the folder of a file and those above it, the outermost, "", first."""
    names = path.split("/")[:-1]
    return ["/".join(names[:count]) for count in range(len(names) + 1)]


def _key(text: str, kind: str = " ") -> int:
    return int.from_bytes(blake2b(f"{kind}{text}".encode("utf-8", "replace"), digest_size=8).digest(), "big")


def _words(text: str) -> set[str]:
    return set(_WORDS.findall(text.casefold()))


def _plain(text: str) -> str:
    return " ".join(_WORDS.findall(text.casefold()))
