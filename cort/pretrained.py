"""Load a released encoder, re-ranker, document expansion (doc2query) or term weighting (DeepCT) model.

Reads a model from a hub, at a pinned commit, or from a folder of sentence-transformers or plain transformers. The
model's files define its layers, lengths, prompts and labels (`cort/models/released.py`); options override some of them.
Safetensors only, no remote code. Weights keep their precision.

Writes a model folder like that of `train` for an encoder, or of `train_reranker` for a re-ranker; for DeepCT, a
transformers folder for token classification; for doc2query, one of an encoder-decoder.

Usage: python -m cort.pretrained --kind dense --pretrained sentence-transformers/all-MiniLM-L6-v2
              --revision c9745ed1d9f207416be6d2e6f8de32d1f16199bf --output base_models/minilm
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cort.config.fields import Revision
from cort.config.models import (
    Described,
    DescribedLengths,
    PairTokens,
    Pooling,
    Prompts,
    ReleasedScoring,
)
from cort.models.hub import opened_folder, save_plain
from cort.models.layout import read_prompts
from cort.models.truncation import read_limits
from cort.runtime import cli
from cort.runtime.command_line import option_of
from cort.runtime.errors import input_error, naming
from cort.runtime.files import atomic_folder
from cort.runtime.sections import Contents, FolderPath, Maybe, same_as

log = logging.getLogger(__name__)

SHORTEST = 8
# Options that override a model's own settings, by kind.
PROMPTED = {*DescribedLengths.model_fields, *Prompts.model_fields}
OVERRIDDEN = {
    "dense": {*Described.model_fields, *PROMPTED},
    "sparse": PROMPTED,
    "late_interaction": {"query_length", "max_length", "query_prompt_name", "passage_prompt_name"},
    "cross_encoder": {"query_length", "max_length"},
}
SETTINGS = sorted({name for names in OVERRIDDEN.values() for name in names})


class Options(Prompts, DescribedLengths, Described, Revision):
    """Options of this stage; those named like a setting of the model override it."""

    kind: Literal["dense", "sparse", "cross_encoder", "late_interaction", "weigher", "expander"]
    pretrained: Annotated[str, Contents("NAME_OR_FOLDER")]
    pooling: Maybe[Pooling] = same_as(Described, "pooling")
    max_length: Maybe[PairTokens] = same_as(ReleasedScoring, "max_length")
    output: FolderPath


def stage(options: Options) -> None:
    """Find, load and check the model; write its folder atomically."""
    from cort.models.card import Origin, write_card
    from cort.models.released import load_released

    wanted = settings_of(options)
    opened = opened_folder(options.pretrained, options.revision, options.output)
    with opened as folder, atomic_folder(options.output) as work, naming(folder, work):
        if options.kind in ("weigher", "expander"):
            save_text_model(folder, options.kind, work)
            log.info("loaded %s", options.pretrained)
            return
        model = load_released(folder, options.kind, wanted)
        model.save(work)
        model.check_lengths("--", work)
        origin = {"pretrained": options.pretrained, "revision": options.revision}
        settings = {key: value for key, value in (origin | wanted).items() if value is not None}
        hub = None if Path(options.pretrained).is_dir() else options.pretrained
        name, kind = Path(options.output).name, type(model.saved).__name__
        write_card(work, name, kind, settings, origin=Origin.of(folder, hub))
        log.info("loaded %s: %s, prompts %s", options.pretrained, read_limits(work), read_prompts(work))


def save_text_model(folder: Path, kind: str, output: Path) -> None:
    """Load and save a document expansion or term weighting model."""
    from cort.models.expander import Sampling, load_expander
    from cort.models.weigher import load_vocabulary, load_weigher

    # Lengths are not part of the model; any with room for a token will do.
    if kind == "weigher":
        save_plain(folder, load_weigher(folder, SHORTEST)[0].classifier, output)
        load_vocabulary(output)
    else:
        save_plain(folder, load_expander(folder, SHORTEST, Sampling(1, SHORTEST))[0].transformer, output)


def settings_of(options: Options) -> dict[str, Any]:
    """Collect the settings that options override; refuse those of another kind of model."""
    given = {name: value for name in SETTINGS if (value := getattr(options, name)) is not None}
    if wrong := sorted(given.keys() - OVERRIDDEN.get(options.kind, ())):
        raise input_error(option_of(wrong[0]), str(given[wrong[0]]), f"none with --kind {options.kind}", "leave it out")
    return given


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
