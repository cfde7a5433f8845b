"""Published models: a local folder, or one that is downloaded from a hub at a fixed commit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cort.models.layout import ADAPTER, Settings, check_model, refusing
from cort.models.settings import REVISION
from cort.models.tokenizer import PROBE, check_vocabulary
from cort.runtime.errors import input_error, naming, shorten
from cort.runtime.files import temporary_folder
from cort.runtime.hub import fetch_snapshot

# Files to download from a hub's repository: settings, tokenizer, weights and card, but not those for other libraries.
WANTED = ["*.json", "*.txt", "*.jinja", "*.model", "artifact.metadata", "model*.safetensors", "*/model.safetensors"]
WANTED += ["adapter_model.safetensors", "README.md"]
UNWANTED = ["onnx/*", "openvino/*"]


@contextmanager
def opened_folder(name: str, revision: str | None, output: str | Path) -> Iterator[Path]:
    """Find the folder of a complete model; that of an adapter is merged, for a while beside `output`, with its base.

    :raises InputError: for a missing model, or a hub name without a commit.
    """
    folder = find_folder(name, revision)
    if not (folder / ADAPTER).is_file():
        check_model(folder, "config.json", "modules.json")
        yield folder
        return
    from cort.models.lora import base_of, merge_adapter

    with temporary_folder(output) as work, naming(folder, work):
        base = find_folder(*base_of(folder), place=f"{folder / ADAPTER}: base_model_name_or_path")
        merge_adapter(base, folder, work)
        yield work


def find_folder(name: str, revision: str | None, place: str = "--pretrained") -> Path:
    """Find a model's folder, or download it from a hub.

    :param place: where its name is written.
    :raises InputError: for a missing model, or a hub name without a commit.
    """
    folder = Path(name)
    if not folder.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise input_error(place, f"{name!r}, no such folder", "a folder, or a hub name", "fix the path")
        if revision is None or not REVISION.fullmatch(revision):
            # The name of a branch may later point to another model.
            without = "without a revision" if revision is None else f"at revision {shorten(revision)}"
            found, expected = f"{name!r}, not a folder, {without}", "a folder, or a hub name with its revision"
            raise input_error(place, found, expected, "name the commit to use, 40 hexadecimal digits")
        fix = "check name, revision and network, or name a local folder"
        folder = fetch_snapshot(name, revision, "a model on the hub", fix, allow=WANTED, ignore=UNWANTED)
    return folder


def open_tokenizer(folder: Path, tokenizer: Any = None) -> Any:
    """Load the fast tokenizer of a model folder, or check one that is loaded."""
    from transformers import AutoTokenizer

    settings = Settings(folder / "tokenizer_config.json")
    expected = "a tokenizer next to the weights"
    with refusing(folder, expected=expected):
        if tokenizer is None:
            options = {"use_fast": True, "trust_remote_code": False, "local_files_only": True}
            tokenizer = AutoTokenizer.from_pretrained(str(folder), **options)
            # Not used here, and transformers cannot save an invalid one.
            tokenizer.chat_template = None
        _add_promised_tokens(settings, tokenizer)
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise input_error(folder, "no vocabulary", expected, "save it there")
    return tokenizer


def save_plain(source: Path, model: Any, output: Path) -> None:
    """Save a transformers model with its tokenizer into a folder."""
    tokenizer = open_tokenizer(source)
    check_vocabulary(source, max(tokenizer.get_vocab().values()) + 1, model.get_input_embeddings().num_embeddings)
    tokenizer.save_pretrained(output)
    model.save_pretrained(output)


def _add_promised_tokens(settings: Settings, tokenizer: Any) -> None:
    """Frame texts with the tokens that `add_bos_token` and `add_eos_token` promise.

    With a tokenizer.json, transformers 5 ignores these flags, unlike earlier releases.
    """
    flags = {name: settings.get(f"add_{name}_token", bool) for name in ("bos", "eos")}
    probe = tokenizer(PROBE, return_special_tokens_mask=True)
    ids, special = probe["input_ids"], probe["special_tokens_mask"]
    added = {"bos": ids[: special.index(0)], "eos": ids[len(ids) - special[::-1].index(0) :]}
    own = {name: [getattr(tokenizer, f"{name}_token_id")] for name in flags}
    if all(own[name] in (added[name][:1], added[name][-1:]) for name, flag in flags.items() if flag):
        return
    for name, flag in flags.items():
        # Any other token there would be lost.
        if added[name] not in ([], own[name]) or (flag and own[name] == [None]):
            tokens = tokenizer.convert_ids_to_tokens(added[name])
            found = f"add_{name}_token {json.dumps(flag)} for {own[name]}, but tokenizer.json adds {tokens}"
            raise input_error(settings.path, found, "files that agree", "correct the file that is wrong")
    tokenizer.add_bos_token, tokenizer.add_eos_token = (bool(flags[name] or added[name]) for name in flags)
