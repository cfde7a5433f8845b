"""Provide a released encoder, re-ranker, or model that weighs terms or expands passages, in one local folder.

A hub name with a pinned commit, or a folder: of sentence-transformers, of plain transformers, or of this project.
Its own files describe it: pooling, lengths, prompts, projection, similarity and labels (`cort/models/released.py`);
options replace them. Safetensors only, no remote code.

Writes a model folder: as `train` does for an encoder, as `train_reranker` does for a re-ranker; of DeepCT's
kind a transformers token-classification folder, of doc2query's one of an encoder-decoder.

Usage: python -m cort.pretrained --kind encoder --pretrained sentence-transformers/all-MiniLM-L6-v2
              --revision c9745ed1d9f207416be6d2e6f8de32d1f16199bf --output base_models/minilm
"""

from __future__ import annotations

import dataclasses
import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cort.models.hub import check_weights, find_folder, open_tokenizer
from cort.models.settings import EncoderSettings, PairSettings, Pooling, Similarity
from cort.system import cli
from cort.system.errors import input_error, naming
from cort.system.files import atomic_folder, temporary_folder
from cort.system.options import optional, required

log = logging.getLogger(__name__)

SHORTEST = 8


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage; those with the name of a model's setting replace it."""

    kind: Literal["encoder", "reranker", "weigher", "expander"] = required()
    pretrained: str = required("NAME_OR_FOLDER")
    revision: str | None = optional(None, "commit of the hub repository; required for a hub name")
    pooling: Pooling | None = optional(None)
    similarity: Similarity | None = optional(None)
    query_length: int | None = optional(None, "tokens, special ones included")
    passage_length: int | None = optional(None, "tokens, special ones included")
    max_length: int | None = optional(None, "of a re-ranker: tokens of the pair, special ones included")
    query_segment: Literal[0, 1] | None = optional(None)
    passage_segment: Literal[0, 1] | None = optional(None)
    query_prompt: str | None = optional(None, "put before every query", "TEXT")
    passage_prompt: str | None = optional(None, "put before every passage", "TEXT")
    query_prompt_name: str | None = optional(None, "the model's own prompt of that name", "NAME")
    passage_prompt_name: str | None = optional(None, "the model's own prompt of that name", "NAME")
    output: str = required("FOLDER")


def stage(options: Options) -> None:
    """Find, read, write the folder whole or not at all."""
    from cort.models import cross_encoder, encoder, rerankers
    from cort.models.modules import Asked
    from cort.models.released import load_released_encoder, load_released_reranker
    from cort.models.tokenizer import load_template
    from cort.models.transformer import count_tokens

    settings = asked_settings(options, EncoderSettings if options.kind == "encoder" else PairSettings)
    folder, fix = find_folder(options.pretrained, options.revision)
    if options.kind in ("weigher", "expander"):
        save = save_released_weigher if options.kind == "weigher" else save_released_expander
        save(folder, fix, options.output)
        log.info("loaded %s", options.pretrained)
        return
    asked = Asked(settings, options.query_prompt_name, options.passage_prompt_name)
    with temporary_folder(options.output) as work, naming(folder, work):
        if options.kind == "encoder":
            model, tokenizer = load_released_encoder(folder, asked, fix)
            tokenizer.save_pretrained(work)
            template = encoder.check_lengths("--", model.settings, work, model.transformer)
            if model.settings.pooling == "last" and not template.after:
                log.warning("%s: its tokenizer puts no token at the end; the last of the text is pooled", folder)
            encoder.save_encoder(model, work, options.output)
            said: Any = model.settings
        else:
            reranker, tokenizer = load_released_reranker(folder, asked, fix)
            tokenizer.save_pretrained(work)
            template = load_template(work, count_tokens(reranker.classifier))
            cross_encoder.check_lengths("--", reranker.settings, template, reranker.classifier)
            rerankers.save_reranker(reranker, work, options.output)
            said = reranker.settings
    words = ", ".join(f"{name} {value!r}" for name, value in dataclasses.asdict(said).items())
    log.info("loaded %s: %s", options.pretrained, words)


def save_released_weigher(folder: Path, fix: str, output: str) -> None:
    """Write the folder of a model that weighs terms, whole or not at all."""
    from cort.models.weigher import load_vocabulary, load_weigher

    tokenizer = open_tokenizer(folder, fix)
    with atomic_folder(output) as temporary, naming(folder, temporary):
        tokenizer.save_pretrained(temporary)
        load_vocabulary(temporary)
        # Of any length that leaves room for a token: which one is no property of the model.
        weigher, _ = load_weigher(folder, SHORTEST)
        weigher.classifier.save_pretrained(temporary)


def save_released_expander(folder: Path, fix: str, output: str) -> None:
    """Write the folder of a model that says which queries passages answer, whole or not at all."""
    from cort.models.expander import load_expander
    from cort.models.tokenizer import check_vocabulary
    from cort.models.transformer import count_tokens

    check_weights(folder)
    tokenizer = open_tokenizer(folder, fix)
    transformer, _ = load_expander(folder, SHORTEST, SHORTEST)
    check_vocabulary(folder, max(tokenizer.get_vocab().values()) + 1, count_tokens(transformer))
    with atomic_folder(output) as temporary:
        tokenizer.save_pretrained(temporary)
        transformer.save_pretrained(temporary)


def asked_settings(options: Options, kind: type[Any]) -> dict[str, Any]:
    """Collect the settings that options replace; those of the other kind of model are refused."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given = {name: value for name, value in values.items() if value is not None}
    of_models = {field.name for each in (EncoderSettings, PairSettings) for field in dataclasses.fields(each)} - {
        "kind"
    }
    own = {field.name for field in dataclasses.fields(kind)}
    if wrong := sorted((given.keys() & of_models) - own):
        place = f"--{wrong[0].replace('_', '-')}"
        raise input_error(place, str(given[wrong[0]]), f"none with --kind {options.kind}", "leave it out")
    return {name: value for name, value in given.items() if name in own - {"kind"}}


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
