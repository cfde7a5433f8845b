"""Convert a released encoder, re-ranker, document expansion (doc2query) or term weighting (DeepCT) model.

Reads a model from a hub, at a pinned commit, or from a folder of sentence-transformers, plain transformers, or this
project. The model's files define its pooling, lengths, prompts, projection, similarity and labels
(`cort/models/released.py`); options override them. Safetensors only, no remote code.

Writes a model folder like that of `train` for an encoder, or of `train_reranker` for a re-ranker; for DeepCT, a
transformers folder for token classification; for doc2query, one of an encoder-decoder.

Usage: python -m cort.pretrained --kind encoder --pretrained sentence-transformers/all-MiniLM-L6-v2
              --revision c9745ed1d9f207416be6d2e6f8de32d1f16199bf --output base_models/minilm
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from pathlib import Path
from typing import Any, Literal

from cort.models.hub import check_weights, find_folder, open_tokenizer
from cort.models.settings import EncoderSettings, PairSettings
from cort.settings.models import Pooling, Similarity
from cort.system import cli
from cort.system.errors import input_error, naming
from cort.system.files import atomic_folder, temporary_folder
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)

SHORTEST = 8


@options_class
class Options:
    """Options of this stage; those named like a setting of the model override it."""

    kind: Literal["encoder", "sparse_encoder", "reranker", "weigher", "expander"] = required()
    pretrained: str = required("NAME_OR_FOLDER")
    revision: str | None = optional(None, "commit of the hub repository; required for a hub name")
    pooling: Pooling | None = optional(None)
    similarity: Similarity | None = optional(None)
    query_length: int | None = optional(None, "tokens, special tokens included")
    passage_length: int | None = optional(None, "tokens, special tokens included")
    max_length: int | None = optional(None, "of a re-ranker: tokens of the pair, special tokens included")
    query_segment: Literal[0, 1] | None = optional(None)
    passage_segment: Literal[0, 1] | None = optional(None)
    query_prompt: str | None = optional(None, "prepended to every query", "TEXT")
    passage_prompt: str | None = optional(None, "prepended to every passage", "TEXT")
    query_prompt_name: str | None = optional(None, "use the model's prompt of this name", "NAME")
    passage_prompt_name: str | None = optional(None, "use the model's prompt of this name", "NAME")
    output: str = required("FOLDER")


def stage(options: Options) -> None:
    """Find, read and convert the model; write its folder atomically."""
    from cort.models import cross_encoder, encoder, rerankers
    from cort.models.released import Overrides, load_released_encoder, load_released_reranker
    from cort.models.tokenizer import load_template
    from cort.models.transformer import count_tokens

    wanted = settings_of(options, EncoderSettings if options.kind.endswith("encoder") else PairSettings)
    folder, fix = find_folder(options.pretrained, options.revision)
    if options.kind == "sparse_encoder":
        save_sparse_model(folder, fix, options)
        log.info("loaded %s", options.pretrained)
        return
    if options.kind in ("weigher", "expander"):
        save_text_model(folder, fix, options)
        log.info("loaded %s", options.pretrained)
        return
    overrides = Overrides(wanted, options.query_prompt_name, options.passage_prompt_name)
    with temporary_folder(options.output) as work, naming(folder, work):
        settings: Any
        if options.kind == "encoder":
            model, tokenizer = load_released_encoder(folder, overrides, fix)
            settings = model.settings
            tokenizer.save_pretrained(work)
            template = encoder.check_lengths("--", settings, work, model.transformer)
            if settings.pooling == "last" and not template.after:
                log.warning("%s: its tokenizer appends no token; the last token of the text is pooled", folder)
            encoder.save_encoder(model, work, options.output)
        else:
            reranker, tokenizer = load_released_reranker(folder, overrides, fix)
            settings = reranker.settings
            tokenizer.save_pretrained(work)
            template = load_template(work, count_tokens(reranker.classifier))
            cross_encoder.check_lengths("--", settings, template, reranker.classifier)
            rerankers.save_reranker(reranker, work, options.output)
    words = ", ".join(f"{name} {value!r}" for name, value in dataclasses.asdict(settings).items())
    log.info("loaded %s: %s", options.pretrained, words)


def save_sparse_model(folder: Path, fix: str, options: Options) -> None:
    """Write the folder of a sparse encoder atomically."""
    from cort.models.sparse_encoder import load_sparse_encoder, save_sparse_encoder

    encoder = load_sparse_encoder(folder)
    encoder.limit(options.query_length, options.passage_length)
    with temporary_folder(options.output) as work:
        encoder.transformer.tokenizer.save_pretrained(work)
        save_sparse_encoder(encoder, work, options.output)


def save_text_model(folder: Path, fix: str, options: Options) -> None:
    """Write the folder of a document expansion or term weighting model atomically."""
    from cort.models.expander import load_expander
    from cort.models.tokenizer import check_vocabulary
    from cort.models.transformer import count_tokens
    from cort.models.weigher import load_vocabulary, load_weigher

    check_weights(folder)
    tokenizer = open_tokenizer(folder, fix)
    with atomic_folder(options.output) as temporary, naming(folder, temporary):
        tokenizer.save_pretrained(temporary)
        # Lengths are not part of the model; any with room for a token will do.
        if options.kind == "weigher":
            load_vocabulary(temporary)
            model: Any = load_weigher(folder, SHORTEST)[0].classifier
        else:
            model, _ = load_expander(folder, SHORTEST, SHORTEST)
        check_vocabulary(folder, max(tokenizer.get_vocab().values()) + 1, count_tokens(model))
        model.save_pretrained(temporary)


def settings_of(options: Options, kind: type[Any]) -> dict[str, Any]:
    """Collect the settings that options override; refuse those of another kind of model."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given = {name: value for name, value in values.items() if value is not None and name != "kind"}
    of_encoders, of_rerankers, own = (
        {field.name for field in dataclasses.fields(settings)} for settings in (EncoderSettings, PairSettings, kind)
    )
    if wrong := sorted((given.keys() & (of_encoders | of_rerankers)) - own):
        option = f"--{wrong[0].replace('_', '-')}"
        raise input_error(option, str(given[wrong[0]]), f"none with --kind {options.kind}", "leave it out")
    return {name: value for name, value in given.items() if name in own}


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
