"""How a tokenizer frames texts: its special tokens, read off the tokenizer itself, so that any BERT-like model fits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cort.system.errors import input_error

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# Any text.
PROBE = "a"


@dataclass(frozen=True)
class Template:
    """Special tokens around one text (``before x after``) and between two (``before x between y after``).

    `second_segment` is the segment id of the second text of a pair, 0 for models without segments.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]
    second_segment: int
    pad: int

    @property
    def extra(self) -> int:
        """Special tokens added to one text."""
        return len(self.before) + len(self.after)

    @property
    def pair_extra(self) -> int:
        """Special tokens added to a pair."""
        return self.extra + len(self.between)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load ``tokenizer.json`` of a model folder with truncation and padding off."""
    from tokenizers import Tokenizer

    path = Path(folder) / "tokenizer.json"
    if not path.exists():
        expected = "a model folder with a fast tokenizer"
        raise input_error(folder, "no tokenizer.json", expected, "save the tokenizer there")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A text that says "[SEP]" means these letters, not the end of a segment.
    tokenizer.encode_special_tokens = True
    return tokenizer


def fingerprint(folder: str | Path) -> str:
    """Identify a tokenizer by the bytes of its ``tokenizer.json``."""
    return hashlib.sha256((Path(folder) / "tokenizer.json").read_bytes()).hexdigest()[:16]


def load_template(folder: str | Path) -> Template:
    """Find out which special tokens the tokenizer of a model folder puts where."""
    tokenizer = load_tokenizer(folder)
    count = len(tokenizer.encode(PROBE, add_special_tokens=False).ids)
    single, pair = tokenizer.encode(PROBE), tokenizer.encode(PROBE, PROBE)
    # Special tokens belong to no text.
    start, second = (pair.sequence_ids.index(text) for text in (0, 1))
    before, between, after = single.ids[:start], pair.ids[start + count : second], single.ids[start + count :]
    return Template(tuple(before), tuple(after), tuple(between), pair.type_ids[second], _pad_id(folder, tokenizer))


def _pad_id(folder: str | Path, tokenizer: Tokenizer) -> int:
    path = Path(folder) / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    token = settings.get("pad_token", "[PAD]")
    token = token["content"] if isinstance(token, dict) else token
    found = tokenizer.token_to_id(token) if token else None
    if found is None:
        raise input_error(path, f"the padding token {token!r}", "a token of the vocabulary", "set pad_token there")
    return int(found)
