"""The folder of a model as sentence-transformers reads it: safetensors and JSON, no code.

Queries and passages differ in their segment id, which a tokenizer sets; so there are two routes. That of queries begins
with a transformer of no layers and one number per token, there for its tokenizer alone, and goes on with the very
transformer of the passages: its weights are on disk, and in memory, once.

    modules.json, config_sentence_transformers.json, router_config.json
    transformer/    the trained model, whole as this project reads it, with the tokenizer of passages
    query/          the tokenizer of queries
    pooling/, projection/, normalize/
"""

from __future__ import annotations

import inspect
import json
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from cort.models.cross_encoder import SETTINGS as PAIR_SETTINGS
from cort.models.cross_encoder import CrossEncoder
from cort.models.encoder import PROJECTION, SETTINGS, Encoder
from cort.models.export.tokenizers import write_json, write_tokenizer
from cort.models.tokenizer import Template

#: The release of sentence-transformers whose layout this is.
RELEASE = "6.2.0"
TRANSFORMER = "transformer"
WEIGHTS = "model.safetensors"
_BASE = "sentence_transformers.base.modules"
_TYPES = {
    "router": f"{_BASE}.router.Router",
    "transformer": f"{_BASE}.transformer.Transformer",
    "pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "projection": f"{_BASE}.dense.Dense",
    "normalize": f"{_BASE}.normalize.Normalize",
}


@dataclass(frozen=True)
class Source:
    """A trained model's folder, its tokenizer's template, and how texts are cleaned first (`cort.formats.cleaning`)."""

    folder: Path
    template: Template
    text: str


def write_encoder(encoder: Encoder, source: Source, folder: Path) -> None:
    """Write an encoder to be loaded as a ``SentenceTransformer``; `folder` is empty."""
    settings = encoder.settings
    segments = "token_type_ids" in encoder.inputs
    transformer = folder / TRANSFORMER
    transformer.mkdir()
    _copy_model(source.folder, transformer, (WEIGHTS, PROJECTION, SETTINGS))
    write_tokenizer(
        source.folder,
        transformer,
        source.template,
        settings.passage_length,
        source.text,
        settings.segment("passage") if segments else 0,
        segments,
    )
    lengths = {"document_length": settings.passage_length, "query_length": settings.query_length}
    options = {"add_pooling_layer": False} if _takes(encoder.transformer, "add_pooling_layer") else {}
    _write_transformer_settings(transformer, "last_hidden_state", "token_embeddings", lengths, options)
    if segments:
        _write_query_route(encoder, source, folder)
        names = ["router", *_write_head(encoder, folder)]
    else:
        names = ["transformer", *_write_head(encoder, folder)]
    _write_modules(folder, names)
    similarity = "cosine" if settings.unit_length else "dot"
    _write_config(folder, "SentenceTransformer", similarity_fn_name=similarity)


def write_cross_encoder(model: CrossEncoder, source: Source, folder: Path) -> None:
    """Write a re-ranker to be loaded as a ``CrossEncoder`` that gives logits; `folder` is empty."""
    settings, template = model.settings, source.template
    transformer = folder / TRANSFORMER
    transformer.mkdir()
    _copy_model(source.folder, transformer, (WEIGHTS, PAIR_SETTINGS))
    segments = "token_type_ids" in model.inputs
    write_tokenizer(source.folder, transformer, template, settings.max_length, source.text, segments=segments)
    # Cutting the longer text never cuts a query that leaves half of the room to the passage, and never fails.
    longest_query, room = settings.query_length - template.extra, settings.max_length - template.pair_extra
    cut = {} if longest_query <= room // 2 else {"processing_kwargs": {"text": {"truncation": "only_second"}}}
    _write_transformer_settings(transformer, "logits", "scores", {**cut, "transformer_task": "sequence-classification"})
    _write_modules(folder, ["transformer"])
    _write_config(folder, "CrossEncoder", activation_fn="torch.nn.modules.linear.Identity")


def _copy_model(source: Path, target: Path, names: tuple[str, ...]) -> None:
    for name in names:
        shutil.copyfile(source / name, target / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    # Would name code of somebody's.
    config.pop("auto_map", None)
    write_json(target / "config.json", config)


def _takes(transformer: Any, option: str) -> bool:
    return option in inspect.signature(type(transformer).__init__).parameters


def _write_transformer_settings(
    folder: Path, output: str, feature: str, more: dict[str, Any], options: dict[str, Any] | None = None
) -> None:
    settings = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": output}},
        "module_output_name": feature,
        # Without padding, segment ids would be left out.
        "unpad_inputs": False,
        **more,
    }
    write_json(folder / "sentence_bert_config.json", settings | ({"model_kwargs": options} if options else {}))


def _write_query_route(encoder: Encoder, source: Source, folder: Path) -> None:
    """Write what gives queries their segment and length, and the routes."""
    from transformers import BertConfig, BertModel

    settings = encoder.settings
    query, segment = folder / "query", settings.segment("query")
    config = BertConfig(
        vocab_size=encoder.transformer.config.vocab_size,
        hidden_size=1,
        num_hidden_layers=0,
        num_attention_heads=1,
        intermediate_size=1,
        max_position_embeddings=settings.query_length,
        pad_token_id=source.template.pad,
    )
    names = BertModel(config, add_pooling_layer=False).state_dict()
    query.mkdir()
    config.architectures, config.dtype = ["BertModel"], "float32"
    config.save_pretrained(query)
    _save({name: torch.zeros_like(value) for name, value in names.items()}, query / WEIGHTS)
    write_tokenizer(source.folder, query, source.template, settings.query_length, source.text, segment)
    more = {"query_length": settings.query_length}
    _write_transformer_settings(query, "last_hidden_state", "no_embeddings", more, {"add_pooling_layer": False})
    routes = {
        "types": {"query": _TYPES["transformer"], TRANSFORMER: _TYPES["transformer"]},
        "structure": {"query": ["query", TRANSFORMER], "document": [TRANSFORMER]},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    write_json(folder / "router_config.json", routes)


def _write_head(encoder: Encoder, folder: Path) -> list[str]:
    """Write what comes after the transformer; the names of its parts."""
    settings, hidden = encoder.settings, encoder.transformer.config.hidden_size
    parts: dict[str, dict[str, Any]] = {
        "pooling": {"embedding_dimension": hidden, "pooling_mode": settings.pooling, "include_prompt": True}
    }
    feature = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}
    if encoder.projection:
        sizes = {"in_features": hidden, "out_features": settings.dimension, "bias": True}
        parts["projection"] = {**sizes, **feature, "activation_function": "torch.nn.modules.activation.Tanh"}
    if settings.unit_length:
        parts["normalize"] = feature
    for name, part in parts.items():
        (folder / name).mkdir()
        write_json(folder / name / "config.json", part)
    if encoder.projection:
        weights = {f"linear.{name}": value.contiguous() for name, value in encoder.projection.state_dict().items()}
        _save(weights, folder / "projection" / WEIGHTS)
    return list(parts)


def _save(weights: dict[str, torch.Tensor], path: Path) -> None:
    from safetensors.torch import save

    # The library's own file would be for its owner's eyes alone.
    path.write_bytes(save(weights, metadata={"format": "pt"}))


def _write_modules(folder: Path, names: list[str]) -> None:
    modules = [
        {"idx": number, "name": str(number), "path": "" if name == "router" else name, "type": _TYPES[name]}
        for number, name in enumerate(names)
    ]
    write_json(folder / "modules.json", modules)


def _write_config(folder: Path, kind: str, **more: str) -> None:
    versions = {
        "sentence_transformers": RELEASE,
        "transformers": version("transformers"),
        "pytorch": str(torch.__version__),
    }
    config = {"model_type": kind, "__version__": versions, "prompts": {}, "default_prompt_name": None, **more}
    write_json(folder / "config_sentence_transformers.json", config)
