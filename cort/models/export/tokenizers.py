"""The tokenizer of an exported model: it does by itself what the stages `tokenize` and `encode` do in two steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cort.formats.cleaning import OTHERS
from cort.models.tokenizer import Template
from cort.system.errors import input_error

# Of the tokenizer's own settings all else is said anew, so that no class and no code of its own is named.
KEPT = ("bos_token", "eos_token", "unk_token", "sep_token", "cls_token", "mask_token")


def write_tokenizer(
    source: Path, target: Path, template: Template, length: int, form: str, segment: int = 0, segments: bool = True
) -> None:
    """Write the tokenizer of a model folder so that it frames, cuts and marks texts itself.

    :param length: tokens a text, or a pair, is cut to.
    :param form: what is done to texts first, one of `cort.formats.cleaning.FORMS`; "fixed" is beyond a tokenizer.
    :param segment: segment id of a single text; that of pairs is as before.
    :param segments: whether the model takes segment ids.
    """
    from tokenizers import Tokenizer

    path = source / "tokenizer.json"
    try:
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        tokens = {number: token for token, number in Tokenizer.from_file(str(path)).get_vocab(True).items()}
    except Exception as error:  # tokenizers has no class of errors
        reason = f"no whole tokenizer ({type(error).__name__})"
        raise input_error(path, reason, "the tokenizer of the model", "build the model again") from error
    tokenizer |= {"truncation": None, "padding": None}
    tokenizer["post_processor"] = _post_processor(template, tokens, segment)
    if form == "cort":
        tokenizer["normalizer"] = _filtered(tokenizer["normalizer"])
    target.mkdir(exist_ok=True)
    # As the library orders and writes it, whatever the version that wrote the source.
    Tokenizer.from_str(json.dumps(tokenizer)).save(str(target / "tokenizer.json"))
    settings = _settings(source, tokens[template.pad], length, segments)
    write_json(target / "tokenizer_config.json", settings)


def write_json(path: Path, content: Any) -> None:
    """Write JSON for people to read, keys in order."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8", newline="\n")


def _post_processor(template: Template, tokens: dict[int, str], segment: int) -> dict[str, Any]:
    def special(ids: tuple[int, ...], segment: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": tokens[number], "type_id": segment}} for number in ids]

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    second = template.second_segment
    single = [*special(template.before, segment), text("A", segment), *special(template.after, segment)]
    first = [*special(template.before, 0), text("A", 0), *special(template.between, 0)]
    used = {tokens[number]: number for number in (*template.before, *template.between, *template.after)}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*first, text("B", second), *special(template.after, second)],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in used.items()},
    }


def _filtered(normalizer: dict[str, Any] | None) -> dict[str, Any]:
    """Put the filter of CoRT's authors before a normalizer."""
    replace = {"type": "Replace", "pattern": {"Regex": OTHERS}, "content": " "}
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    return {"type": "Sequence", "normalizers": [replace, strip, *([normalizer] if normalizer else [])]}


def _settings(source: Path, pad: str, length: int, segments: bool) -> dict[str, Any]:
    path = source / "tokenizer_config.json"
    own = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    named = {key: own[key]["content"] if isinstance(own[key], dict) else own[key] for key in KEPT if own.get(key)}
    return {
        **named,
        "pad_token": pad,
        "model_max_length": length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        # A text that says "[SEP]" means these letters.
        "split_special_tokens": True,
        # Reads tokenizer.json as it is; a model's own class would put parts of it together anew.
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
