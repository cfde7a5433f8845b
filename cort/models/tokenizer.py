"""How a tokenizer frames texts: with special tokens, which tokenizing a probe reveals for any BERT-like model."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cort.formats.cleaning import OTHERS, convert
from cort.models.layout import Settings, read_prompts, refusing, tokenizer_folder
from cort.runtime.errors import input_error

if TYPE_CHECKING:
    import pyarrow as pa
    from tokenizers import Encoding, Tokenizer

# Any text.
PROBE = "a"
#: the filter of CoRT's authors, as the first steps of a normalizer
FILTER = [
    {"type": "Replace", "pattern": {"Regex": OTHERS}, "content": " "},
    {"type": "Strip", "strip_left": True, "strip_right": True},
]


@dataclass(frozen=True)
class Template:
    """Special tokens around a text (``before x after``) and between two (``before x between y after``).

    :ivar second_segment: segment id of the second text of a pair, 0 for models without segments.
    :ivar segment: segment id of a single text.
    :ivar segments: whether the model reads segment ids.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    between: tuple[int, ...]
    second_segment: int
    pad: int
    #: token ids are below it
    vocabulary: int = field(default=sys.maxsize, compare=False)
    segment: int = 0
    segments: bool = True
    #: tokens that end a truncated passage and a truncated query, and whether batches are filled on the left
    cut: tuple[int, ...] = ()
    query_cut: tuple[int, ...] = ()
    left: bool = False
    #: whether the tokens are those of a prompt, which are not counted in the length of a query
    prompt: bool = False

    @property
    def extra(self) -> int:
        """Special tokens added to one text."""
        return len(self.before) + len(self.after)

    @property
    def query_extra(self) -> int:
        """Tokens of the frame that count in the length of the query of a pair."""
        return 0 if self.prompt else self.extra

    @property
    def pair_extra(self) -> int:
        """Special tokens added to a pair."""
        return self.extra + len(self.between)


def load_tokenizer(folder: str | Path, prompts: Collection[str] | None = None) -> Tokenizer:
    """Load the tokenizer of a model folder, without truncation and padding.

    :param prompts: special tokens in these prompts are tokenized as such; None takes the prompts of the folder.
    """
    from tokenizers import Tokenizer

    path = tokenizer_folder(folder) / "tokenizer.json"
    tokenizer = _open(folder, path)
    with refusing(path):
        prompts = [text for around in read_prompts(folder).values() for text in around] if prompts is None else prompts
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]
        if any(token in prompt for token in special for prompt in prompts):
            content = json.loads(path.read_text(encoding="utf-8"))
            for token in content["added_tokens"]:
                token["special"] &= not any(token["content"] in prompt for prompt in prompts)
            tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # "[SEP]" in a text is plain text, not the end of a segment.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _open(folder: str | Path, path: Path) -> Tokenizer:
    """Read the tokenizer.json of a model folder."""
    from tokenizers import Tokenizer

    if not path.is_file():
        expected = "a model folder with a fast tokenizer"
        raise input_error(folder, "no tokenizer.json", expected, "save the tokenizer there")
    with refusing(path):
        return Tokenizer.from_file(str(path))


def fingerprint(folder: str | Path) -> str:
    """Identify how a model folder tokenizes cleaned texts: its tokenizer without special tokens, and its prompts."""
    with refusing(Path(folder) / "tokenizer.json"):
        content = json.loads(load_tokenizer(folder).to_str())
    steps = (content["normalizer"] or {}).get("normalizers", [])
    if steps[: len(FILTER)] == FILTER:
        # Texts were cleaned before; the filter is for other programs.
        content["normalizer"] = steps[len(FILTER)] if len(steps) > len(FILTER) else None
    parts = {part: content[part] for part in ("normalizer", "pre_tokenizer", "model", "added_tokens")}
    parts |= {kind: prompt for kind, prompt in read_prompts(folder).items() if any(prompt)}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def load_template(folder: str | Path, most: int = sys.maxsize, kind: str = "passage") -> Template:
    """Find out which special tokens the tokenizer of a model folder adds to texts of a kind.

    :param most: number of tokens for which the model has embeddings.
    """
    own = tokenizer_folder(folder, kind)
    tokenizer = _open(folder, own / "tokenizer.json")
    pad = special_id(own, tokenizer, "pad_token", "set it there")
    template = template_of(own, tokenizer, pad)
    check_vocabulary(folder, template.vocabulary, most)
    return template


def template_of(folder: str | Path, tokenizer: Tokenizer, pad: int, segments: bool = True) -> Template:
    """Find out which special tokens a tokenizer adds, without its truncation and padding."""
    with refusing(Path(folder) / "tokenizer.json"):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        count = len(tokenizer.encode(PROBE, add_special_tokens=False).ids)
        single, pair = tokenizer.encode(PROBE), tokenizer.encode(PROBE, PROBE)
        # Special tokens belong to neither text.
        start, second = (pair.sequence_ids.index(text) for text in (0, 1))
        before, between, after = single.ids[:start], pair.ids[start + count : second], single.ids[start + count :]
        vocabulary = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    frame = tuple(before), tuple(after), tuple(between)
    return Template(*frame, pair.type_ids[second], pad, vocabulary, single.type_ids[start], segments)


def encode(
    folder: str | Path, tokenizer: Tokenizer, around: tuple[str, str], texts: pa.Array, form: str
) -> list[Encoding]:
    """Clean texts, put the prompt that is `around` them before and after, and tokenize; without special tokens."""
    before, after = around
    converted = [f"{before}{text}{after}" for text in convert(texts, form).to_pylist()]
    with refusing(Path(folder) / "tokenizer.json"):
        encodings: list[Encoding] = tokenizer.encode_batch_fast(converted, add_special_tokens=False)
    return encodings


def check_vocabulary(folder: str | Path, tokens: int, most: int) -> None:
    """Refuse a tokenizer with ids that have no embeddings in the model."""
    if tokens > most:
        raise input_error(folder, f"{tokens} tokens", f"at most the model's {most}", "use its own tokenizer")


def read_special_tokens(folder: str | Path) -> dict[str, Any]:
    """Read the special tokens of ``tokenizer_config.json``, such as ``pad_token``; each is a string or an object."""
    entries = Settings(Path(folder) / "tokenizer_config.json").values
    # Not flags such as `add_bos_token`.
    return {
        key: value.get("content") if isinstance(value, dict) else value
        for key, value in entries.items()
        if key.endswith("_token") and not isinstance(value, bool)
    }


def special_id(folder: str | Path, tokenizer: Tokenizer, name: str, fix: str) -> int:
    """Look up the id of a special token, such as ``pad_token``; by default, it is BERT's."""
    token = read_special_tokens(folder).get(name, f"[{name.removesuffix('_token').upper()}]")
    number = tokenizer.token_to_id(token) if isinstance(token, str) else None
    if number is None:
        path = Path(folder) / "tokenizer_config.json"
        raise input_error(path, f"the {name} {token!r}", "a token of the vocabulary", fix)
    return int(number)
