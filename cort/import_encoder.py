"""Import an encoder that the authors of CoRT released, or one in the same format, instead of training one.

The file was written by torch.save: a checkpoint of PyTorch Lightning with a ``state_dict``, or a state_dict. Its
tensors are those of a transformer, ``transformer.*``, and of the projection, ``f1.weight`` and ``f1.bias``. It is the
only pickle that this program ever opens, and torch may only build tensors and plain values from it.
A ``.safetensors`` file works, too. The file of a transformers model, whose names have no prefix or that of its
architecture (``bert.``), gives an encoder without projection.
All weights come from the file; architecture and tokenizer are those of the base model.

Reads:  the file, a base model folder
Writes: the model folders best/ and last/, which are identical

Usage:  python -m cort.import_encoder --weights cort-e128.ckpt --base-model base_models/albert --dimension 128
            --output encoders/cort
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cort.config.models import Cleaned
from cort.formats.cleaning import Form
from cort.models.settings import EncoderSettings
from cort.runtime import cli
from cort.runtime.command_line import take
from cort.runtime.errors import input_error
from cort.runtime.files import atomic_folder
from cort.runtime.sections import AnyFile, FolderPath, same_as

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

# The pooler, pre-training heads, and buffers that older versions of transformers saved and newer ones recompute.
DROPPED = re.compile(r"transformer\.(pooler\..+|cls\..+|predictions\..+|embeddings\.(position_ids|token_type_ids))")
TRANSFORMER_PREFIX, PROJECTION_PREFIX = "transformer.", "f1."
CODE = re.compile(r"GLOBAL (\S+)")
FIX = "name the base model it was trained from, or another file"


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read a released file, which may only hold tensors and plain values.

    :raises InputError: for anything else, of which nothing is executed.
    """
    import torch
    from safetensors.torch import load_file

    with Path(path).open("rb"):
        pass  # if it cannot be opened, the system's message is shown
    try:
        if Path(path).suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            # Torch's warnings about pickles are for their authors.
            warnings.simplefilter("ignore")
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of many kinds for other files, and advises to trust them
        named = CODE.search(str(error))
        reason = f"it names {named[1]}" if named else type(error).__name__
        found = f"a file that does not only have tensors and plain values ({reason})"
        fix = "download it again, or ask its authors for the state_dict alone"
        raise input_error(path, found, "a Lightning checkpoint or a state_dict", fix) from error
    tensors = content.get("state_dict", content) if isinstance(content, dict) else {}
    return {name: value for name, value in tensors.items() if isinstance(value, torch.Tensor)}


def rename(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Rename the tensors of a transformers model to the authors' names; tensors that have these names keep them.

    :param prefix: of the architecture; in a model with a head, the transformer's names begin with it.
    """
    if any(name.startswith(TRANSFORMER_PREFIX) for name in tensors):
        return tensors
    return {
        name if name.startswith(PROJECTION_PREFIX) else TRANSFORMER_PREFIX + name.removeprefix(prefix): value
        for name, value in tensors.items()
    }


class Options(EncoderSettings):
    """Options of this stage."""

    weights: AnyFile
    """The released file."""
    base_model: FolderPath
    """Gives architecture and tokenizer."""
    cleaning: Form = same_as(Cleaned, "cleaning")
    """Of all texts, which the saved tokenizer does, too."""
    output: FolderPath
    """Folder of best/ and last/."""


def stage(options: Options) -> None:
    """Read, check, and write both folders."""
    from torch import nn

    from cort.models.card import write_card
    from cort.models.encoder import new_encoder
    from cort.models.loading import check_tensors

    tensors = read_tensors(options.weights)
    # All drawn weights are replaced.
    settings = take(EncoderSettings, options)
    encoder = new_encoder(options.base_model, settings, seed=0, cleaning=options.cleaning)
    layers = nn.ModuleDict({TRANSFORMER_PREFIX[:-1]: encoder.transformer})
    if encoder.projection is not None:
        layers[PROJECTION_PREFIX[:-1]] = encoder.projection
    own = layers.state_dict()
    tensors = rename(tensors, f"{encoder.transformer.base_model_prefix}.")
    tensors = {name: value for name, value in tensors.items() if name in own or not DROPPED.fullmatch(name)}
    sizes = {len(part["f1.weight"]) for part in (tensors, own) if "f1.weight" in part}
    fix = f"set dimension to {len(tensors['f1.weight'])}" if len(sizes) > 1 else FIX
    check_tensors(options.weights, tensors, own, fix)
    layers.load_state_dict(tensors)
    for piece in ("best", "last"):
        with atomic_folder(Path(options.output) / piece) as folder:
            encoder.save(folder)
            about = {"weights": options.weights, **settings.model_dump()}
            write_card(folder, Path(options.output).name, type(encoder.saved).__name__, about)
    count = sum(weights.numel() for weights in encoder.parameters())
    log.info("imported %d weights from %s", count, options.weights)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
