"""Pretrained models as others save them: a folder, or what is fetched of one from a hub, at one commit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from cort.formats.artifacts import read_json
from cort.models.settings import REVISION, ref_of
from cort.system.errors import input_error, shorten
from cort.system.interruption import Interrupted

COMPLAINT_LENGTH = 200
# What is needed of a hub's repository: settings, tokenizer, weights; not those of other programs.
WANTED = ["*.json", "*.txt", "*.model", "model*.safetensors", "*/model.safetensors"]
UNWANTED = ["onnx/*", "openvino/*"]


def find_folder(name: str, revision: str | None) -> tuple[Path, str]:
    """Find a model's folder, fetched if it is on a hub, and say what to do about what is wrong in it.

    :raises InputError: no such model, a name without its commit, pickles alone.
    """
    folder, fix = Path(name), "save the whole model there again"
    if not folder.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1:
            raise input_error("--pretrained", f"{name!r}, no such folder", "a folder, or a hub name", "fix the path")
        revision = _checked(name, revision)
        fix = "check name, revision and network, or name a local folder"
        folder = _fetch(name, revision, fix)
    if not (folder / "config.json").exists() and not (folder / "modules.json").exists():
        raise input_error(folder, "no config.json", "a transformers model folder", "name the folder of the model")
    return folder, fix


def check_weights(folder: Path) -> None:
    """Refuse a folder without settings or with pickled weights alone."""
    if not (folder / "config.json").exists():
        raise input_error(folder, "no config.json", "a transformers model folder", "name the folder of the model")
    read_json(folder / "config.json").of(dict)
    if not any(folder.glob("*.safetensors")):
        fix = "convert it with save_pretrained; pickles are refused"
        raise input_error(folder, "no safetensors weights", "model.safetensors", fix)


def open_tokenizer(folder: Path, fix: str) -> Any:
    """Load the fast tokenizer of a model folder."""
    from transformers import AutoTokenizer

    try:
        found: Any = AutoTokenizer.from_pretrained(
            str(folder), use_fast=True, trust_remote_code=False, local_files_only=True
        )
    except Interrupted:
        raise
    except Exception as error:  # transformers and tokenizers have errors of many kinds
        reason = shorten(str(error).strip() or type(error).__name__, COMPLAINT_LENGTH)
        raise input_error(folder, f"no whole tokenizer ({reason})", "a tokenizer beside the weights", fix) from error
    if set(found.get_vocab()) <= set(found.all_special_tokens):
        raise input_error(folder, "no vocabulary", "a tokenizer beside the weights", "save it there")
    return found


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
