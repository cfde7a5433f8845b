"""Pretrained models as others save them: a folder, or what is fetched of one from a hub, at one commit."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cort.formats.artifacts import Node, read_json
from cort.models.settings import FIX, REVISION, ref_of
from cort.models.tokenizer import PROBE
from cort.system.errors import InputError, input_error, shorten
from cort.system.interruption import Interrupted

COMPLAINT_LENGTH = 200
# What is needed of a hub's repository: settings, tokenizer, weights; not those of other programs.
WANTED = ["*.json", "*.txt", "*.model", "model*.safetensors", "*/model.safetensors"]
UNWANTED = ["onnx/*", "openvino/*"]


class Settings:
    """Values of a JSON file, of which it may have none, or which may be absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.node = read_json(path, FIX) if path.is_file() else Node(path, {})
        self.values: Mapping[str, Any] = self.node.of(dict)

    def get(self, key: str, kind: Any = None) -> Any:
        """Value of a key, of a type if one is given; None if there is none."""
        value = self.values.get(key)
        return value if value is None or kind is None else self.node[key].read(kind)

    def limit(self, key: str, kind: type = int) -> Any:
        """Value of a key that is a number from 1 on; None if there is none."""
        if (value := self.get(key, kind)) is not None and value < 1:
            raise self.node[key].complain(str(self.values[key]), "a number from 1 on")
        return value


def find_folder(name: str, revision: str | None) -> tuple[Path, str]:
    """Find a model's folder, fetched if it is on a hub, and say what to do about what is wrong in it.

    :raises InputError: no such model, a name without its commit, pickles alone.
    """
    folder, fix = Path(name), FIX
    if not folder.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise input_error("--pretrained", f"{name!r}, no such folder", "a folder, or a hub name", "fix the path")
        revision = _checked(name, revision)
        fix = "check name, revision and network, or name a local folder"
        folder = _fetch(name, revision, fix)
    refuse_adapter(folder)
    if not (folder / "config.json").exists() and not (folder / "modules.json").exists():
        raise input_error(folder, "no config.json", "a transformers model folder", "name the folder of the model")
    return folder, fix


def refuse_adapter(folder: Path) -> None:
    """Refuse a folder with a LoRA or another adapter, which transformers would leave out without peft."""
    if found := sorted(path.name for path in folder.glob("adapter_*")):
        fix = "merge it into the weights with peft's merge_and_unload(), and save that model with save_pretrained"
        raise input_error(folder, f"the adapter {shorten(found[0])}", "a model whose weights are whole", fix)


def check_weights(folder: Path) -> None:
    """Refuse a folder without settings, with an adapter, or with pickled weights alone."""
    refuse_adapter(folder)
    if not (folder / "config.json").exists():
        raise input_error(folder, "no config.json", "a transformers model folder", "name the folder of the model")
    read_json(folder / "config.json", FIX).of(dict)
    if not any(folder.glob("*.safetensors")):
        fix = "convert it with save_pretrained; pickles are refused"
        raise input_error(folder, "no safetensors weights", "model.safetensors", fix)


def open_tokenizer(folder: Path, fix: str) -> Any:
    """Load the fast tokenizer of a model folder."""
    from transformers import AutoTokenizer

    settings = Settings(folder / "tokenizer_config.json")
    # A number beyond all whole ones, where there is no limit.
    settings.limit("model_max_length", float)
    settings.get("model_input_names", list[str])
    try:
        found: Any = AutoTokenizer.from_pretrained(
            str(folder), use_fast=True, trust_remote_code=False, local_files_only=True
        )
        _frame_as_promised(settings, found)
        # Not used here, and transformers fails to save one that is wrong.
        found.chat_template = None
    except (InputError, Interrupted):
        raise
    except Exception as error:  # transformers and tokenizers have errors of many kinds
        reason = shorten(str(error).strip() or type(error).__name__, COMPLAINT_LENGTH)
        raise input_error(folder, f"no whole tokenizer ({reason})", "a tokenizer beside the weights", fix) from error
    if set(found.get_vocab()) <= set(found.all_special_tokens):
        raise input_error(folder, "no vocabulary", "a tokenizer beside the weights", "save it there")
    return found


def _frame_as_promised(settings: Settings, tokenizer: Any) -> None:
    """Put the tokens around texts that `add_bos_token` and `add_eos_token` promise.

    Beside a tokenizer.json, transformers 5 no longer reads these flags, by which earlier releases framed texts.
    """
    flags = {name: settings.get(f"add_{name}_token", bool) for name in ("bos", "eos")}
    probe = tokenizer(PROBE, return_special_tokens_mask=True)
    ids, special = probe["input_ids"], probe["special_tokens_mask"]
    start, end = special.index(0), len(ids) - special[::-1].index(0)
    there = {"bos": ids[:start], "eos": ids[end:]}
    own = {name: [getattr(tokenizer, f"{name}_token_id")] for name in flags}
    promised = (there["bos"][:1] == own["bos"] or not flags["bos"], there["eos"][-1:] == own["eos"] or not flags["eos"])
    if all(promised):
        return
    for name, flag in flags.items():
        # Another token that stands there would be lost.
        if there[name] not in ([], own[name]) or (flag and own[name] == [None]):
            token, tokens = getattr(tokenizer, f"{name}_token"), tokenizer.convert_ids_to_tokens(there[name])
            found = (
                f"add_{name}_token {json.dumps(flag)} with the {name}_token {token}, where tokenizer.json has {tokens}"
            )
            raise input_error(settings.path, found, "one and the same", "correct the file that is wrong")
    tokenizer.add_bos_token, tokenizer.add_eos_token = (bool(flags[name] or there[name]) for name in flags)


def _checked(name: str, revision: str | None) -> str:
    """Refuse names of branches, under which a hub gives another model tomorrow."""
    if revision is None or not REVISION.fullmatch(revision):
        without = "without a revision" if revision is None else f"at revision {shorten(revision)}"
        found, expected = f"{name!r}, no folder, {without}", "a folder, or a hub name with its revision"
        raise input_error("--pretrained", found, expected, "name the commit to use, 40 hexadecimal digits")
    return revision


def _fetch(name: str, revision: str, fix: str) -> Path:
    from huggingface_hub import snapshot_download

    # Its client logs every request, of which a model takes dozens.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    ref, commit = ref_of(revision), revision.partition("@")[2]
    try:
        folder = Path(snapshot_download(name, revision=ref, allow_patterns=WANTED, ignore_patterns=UNWANTED))
    except Interrupted:
        raise
    except Exception as error:  # the client's transport has errors of its own kinds
        reason = shorten(str(error).strip() or type(error).__name__, COMPLAINT_LENGTH)
        raise input_error(name, f"no model to fetch ({reason})", "a model of the hub", fix) from error
    # The cache names each folder by its commit.
    if not folder.name.startswith(commit):
        found, expected = f"commit {folder.name} at {ref}", f"one that begins with {commit}"
        raise input_error(name, found, expected, "look at what has changed there, then name its commit")
    return folder
