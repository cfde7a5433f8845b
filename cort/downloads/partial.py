"""The part of a file that has come so far, with what tells whose part it is, so that no changed file is spliced."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from cort.system.files import write_text


@dataclass(frozen=True)
class Identity:
    """What a server says of a file: its entity tag, date and size in bytes; None where it says nothing."""

    url: str
    etag: str | None = None
    modified: str | None = None
    total: int | None = None

    @property
    def validator(self) -> str | None:
        """What `If-Range` may name: a strong tag, else a date."""
        strong = self.etag if self.etag and not self.etag.startswith("W/") else None
        return strong or self.modified

    def differs_from(self, other: Identity) -> bool:
        """Whether anything that both know tells the two apart."""
        pairs = ((self.etag, other.etag), (self.modified, other.modified), (self.total, other.total))
        return any(one is not None and two is not None and one != two for one, two in pairs)


class Partial:
    """What has come from one URL: ``<file>.<url's hash>.part``, beside it ``.json`` with its identity."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        key = hashlib.sha256(url.encode()).hexdigest()[:8]
        self.path = folder / f"{name}.{key}.part"
        self._note = self.path.with_suffix(".json")
        self._url = url

    @property
    def size(self) -> int:
        """Bytes that are there and may be continued."""
        if self.identity is None or not self.path.is_file():
            return 0
        return self.path.stat().st_size

    @property
    def identity(self) -> Identity | None:
        """What the part is of; None if that is not known."""
        try:
            found = Identity(**json.loads(self._note.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None
        return found if found.url == self._url else None

    @property
    def is_complete(self) -> bool:
        """Whether all has come that was announced."""
        identity = self.identity
        return identity is not None and identity.total is not None and self.size == identity.total

    def begin(self, identity: Identity) -> None:
        """Start anew."""
        self.discard()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        # After the old bytes went: a note never stands beside bytes of another file.
        write_text(self._note, json.dumps(asdict(identity)) + "\n")

    def append(self) -> IO[bytes]:
        """Open the part at its end."""
        return open(self.path, "ab")

    def discard(self) -> None:
        """Remove the part."""
        for path in (self._note, self.path):
            with suppress(FileNotFoundError):
                path.unlink()
