"""Save a trained model with its card."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from cort.models.card import write_card
from cort.runtime.files import atomic_folder
from cort.training.loop import NOT_DECISIVE
from cort.training.settings import TrainingOptions

FIXED = "Fix wrongly decoded texts first, as in training: `ftfy.fix_encoding(text)`."


def save_trained(model: Any, name: str, options: TrainingOptions) -> None:
    """Write the model folder of a name, "best" or "last", atomically."""
    output = Path(options.output)
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    paths = {*options.files(), *NOT_DECISIVE, "base_model", "start"}
    settings = {key: value for key, value in values.items() if key not in paths and value is not None}
    with atomic_folder(output / name) as folder:
        model.save(folder)
        kind = type(model.saved).__name__ if hasattr(model, "saved") else None
        notes = [FIXED] if options.cleaning == "fixed" else []
        write_card(folder, output.name, None if vars(options).get("term_weights") else kind, settings, notes)
