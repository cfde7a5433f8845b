"""Export a model in the layout of sentence-transformers: a folder of safetensors and JSON, no code.

Queries and passages differ in their segment id, which a tokenizer sets, so there are two routes. The query route begins
with a transformer that has no layers and one number per token and only provides its tokenizer. It continues with the
transformer of the passages, whose weights are stored and loaded once.

    modules.json, config_sentence_transformers.json, router_config.json
    transformer/    the trained model, readable by this project, with the tokenizer of passages
    query/          the tokenizer of queries
    pooling/, projection/, normalize/

An exported tokenizer does by itself what the stages `tokenize` and `encode` do in two steps.
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
from safetensors.torch import save
from tokenizers import Tokenizer
from torch import nn

from cort.formats.cleaning import OTHERS
from cort.models.cross_encoder import CrossEncoder
from cort.models.encoder import PROJECTION, Encoder
from cort.models.settings import HEAD
from cort.models.tokenizer import Template, read_prompts, read_special_tokens, read_tokenizer, refusing

#: release of sentence-transformers that defines this layout
RELEASE = "6.2.0"
TRANSFORMER, QUERY = "transformer", "query"
EMBEDDING = "sentence_embedding"
WEIGHTS = "model.safetensors"
# Settings of the tokenizer that are copied. All others are written here, so that none names a class or custom code.
KEPT = ("bos_token", "eos_token", "unk_token", "sep_token", "cls_token", "mask_token")
POOLINGS = {"cls": "cls", "mean": "mean", "last": "lasttoken"}
ACTIVATIONS = {"tanh": "torch.nn.modules.activation.Tanh", "identity": "torch.nn.modules.linear.Identity"}
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
    """A trained model's folder, its tokenizer's template, and how texts are cleaned (`cort.formats.cleaning`)."""

    folder: Path
    template: Template
    cleaning: str


def write_encoder(encoder: Encoder, source: Source, folder: Path) -> None:
    """Write an encoder that loads as a ``SentenceTransformer`` into an empty folder."""
    settings, segments = encoder.settings, "token_type_ids" in encoder.inputs
    transformer = _copy_model(source.folder, folder, (WEIGHTS, PROJECTION, settings.FILE))
    segment = settings.passage_segment if segments else 0
    _write_tokenizer(source, transformer, settings.passage_length, segment, segments)
    more: dict[str, Any] = {"document_length": settings.passage_length, "query_length": settings.query_length}
    more |= _without_pooler(encoder.transformer)
    _write_transformer_settings(transformer, "last_hidden_state", "token_embeddings", **more)
    if segments:
        _write_query_route(encoder, source, folder)
    names = ["router" if segments else "transformer", *_write_head(encoder, folder)]
    similarity = "cosine" if settings.unit_length else "dot"
    prompts = {"query": settings.query_prompt, "document": settings.passage_prompt}
    default = "document" if settings.passage_prompt else None
    more = {"similarity_fn_name": similarity, "prompts": prompts, "default_prompt_name": default}
    _write_index(folder, names, "SentenceTransformer", **more)


def write_cross_encoder(model: CrossEncoder, source: Source, folder: Path) -> None:
    """Write a re-ranker that loads as a ``CrossEncoder`` and returns logits into an empty folder."""
    settings, template = model.settings, source.template
    transformer = _copy_model(source.folder, folder, (WEIGHTS, settings.FILE, *([HEAD] if model.head else [])))
    _write_tokenizer(source, transformer, settings.max_length, 0, "token_type_ids" in model.inputs)
    more: dict[str, Any] = {} if model.head else {"transformer_task": "sequence-classification"}
    # Truncating the longer text spares a query that leaves half of the room to the passage, and never fails.
    if settings.query_length - template.extra > (settings.max_length - template.pair_extra) // 2:
        more["processing_kwargs"] = {"text": {"truncation": "only_second"}}
    names = ["transformer"]
    if model.head is None:
        _write_transformer_settings(transformer, "logits", "scores", **more)
    else:
        more |= _without_pooler(model.classifier)
        _write_transformer_settings(transformer, "last_hidden_state", "token_embeddings", **more)
        hidden = model.classifier.config.hidden_size
        parts = {"pooling": _pooling(hidden, "cls"), "projection": _dense(hidden, 1, "identity", "scores")}
        names += _write_parts(parts, model.head, folder)
    _write_index(folder, names, "CrossEncoder", activation_fn=ACTIVATIONS["identity"])


def _copy_model(source: Path, folder: Path, names: tuple[str, ...]) -> Path:
    target = folder / TRANSFORMER
    target.mkdir()
    for name in names:
        shutil.copyfile(source / name, target / name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    # It would name custom code.
    config.pop("auto_map", None)
    _write_json(target / "config.json", config)
    return target


def _write_transformer_settings(folder: Path, output: str, feature: str, **more: Any) -> None:
    settings = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": output}},
        "module_output_name": feature,
        # Without padding, segment ids would be left out.
        "unpad_inputs": False,
        **more,
    }
    _write_json(folder / "sentence_bert_config.json", settings)


def _write_query_route(encoder: Encoder, source: Source, folder: Path) -> None:
    """Write the routes, and the tokenizer that sets the segment and length of queries."""
    from transformers import BertConfig, BertModel

    settings, query = encoder.settings, folder / QUERY
    vocabulary, length, pad = encoder.transformer.config.vocab_size, settings.query_length, source.template.pad
    sizes = {"hidden_size": 1, "num_hidden_layers": 0, "num_attention_heads": 1, "intermediate_size": 1}
    config = BertConfig(vocab_size=vocabulary, max_position_embeddings=length, pad_token_id=pad, **sizes)
    weights = BertModel(config, add_pooling_layer=False).state_dict()
    query.mkdir()
    config.architectures, config.dtype = ["BertModel"], "float32"
    config.save_pretrained(query)
    _write_weights({name: torch.zeros_like(value) for name, value in weights.items()}, query / WEIGHTS)
    _write_tokenizer(source, query, length, settings.query_segment)
    more = {"query_length": length, "model_kwargs": {"add_pooling_layer": False}}
    _write_transformer_settings(query, "last_hidden_state", "no_embeddings", **more)
    routes = {
        "types": {QUERY: _TYPES["transformer"], TRANSFORMER: _TYPES["transformer"]},
        "structure": {"query": [QUERY, TRANSFORMER], "document": [TRANSFORMER]},
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    _write_json(folder / "router_config.json", routes)


def _write_head(encoder: Encoder, folder: Path) -> list[str]:
    """Write the modules after the transformer; returns their names."""
    settings, hidden = encoder.settings, encoder.transformer.config.hidden_size
    parts = {"pooling": _pooling(hidden, settings.pooling)}
    if encoder.projection:
        parts["projection"] = _dense(hidden, settings.dimension, settings.activation, EMBEDDING)
    if settings.unit_length:
        parts["normalize"] = {"module_input_name": EMBEDDING, "module_output_name": EMBEDDING}
    return _write_parts(parts, encoder.projection, folder)


def _pooling(hidden: int, name: str) -> dict[str, Any]:
    return {"embedding_dimension": hidden, "pooling_mode": POOLINGS[name], "include_prompt": True}


def _dense(hidden: int, dimension: int, activation: str, output: str) -> dict[str, Any]:
    feature = {"module_input_name": EMBEDDING, "module_output_name": output}
    sizes = {"in_features": hidden, "out_features": dimension, "bias": True}
    return {**sizes, **feature, "activation_function": ACTIVATIONS[activation]}


def _write_parts(parts: dict[str, dict[str, Any]], projection: nn.Module | None, folder: Path) -> list[str]:
    """Write modules by name, and the weights of the projection if there is one; returns their names."""
    for name, part in parts.items():
        (folder / name).mkdir()
        _write_json(folder / name / "config.json", part)
    if projection:
        weights = {f"linear.{name}": value.contiguous() for name, value in projection.state_dict().items()}
        _write_weights(weights, folder / "projection" / WEIGHTS)
    return list(parts)


def _without_pooler(transformer: Any) -> dict[str, Any]:
    """Make the argument that keeps transformers from adding a pooler."""
    takes = inspect.signature(type(transformer).__init__).parameters
    return {"model_kwargs": {"add_pooling_layer": False}} if "add_pooling_layer" in takes else {}


def _write_weights(weights: dict[str, torch.Tensor], path: Path) -> None:
    # A file written by safetensors itself would be readable only by its owner.
    path.write_bytes(save(weights, metadata={"format": "pt"}))


def _write_index(folder: Path, names: list[str], kind: str, **more: Any) -> None:
    """Write the list of modules and the kind of model."""
    modules = [
        {"idx": number, "name": str(number), "path": "" if name == "router" else name, "type": _TYPES[name]}
        for number, name in enumerate(names)
    ]
    _write_json(folder / "modules.json", modules)
    versions = {"transformers": version("transformers"), "pytorch": str(torch.__version__)}
    versions["sentence_transformers"] = RELEASE
    config = {"model_type": kind, "__version__": versions, "prompts": {}, "default_prompt_name": None, **more}
    _write_json(folder / "config_sentence_transformers.json", config)


def _write_json(path: Path, content: Any) -> None:
    """Write indented JSON with sorted keys."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8", newline="\n")


def _write_tokenizer(source: Source, target: Path, length: int, segment: int, segments: bool = True) -> None:
    """Write a tokenizer that cleans, frames and truncates texts and sets segment ids by itself.

    It cannot do the cleaning "fixed".

    :param length: tokens that a text, or a pair, is truncated to.
    :param segment: segment id of a single text; pairs keep theirs.
    :param segments: whether the model takes segment ids.
    """
    path = source.folder / "tokenizer.json"
    with refusing(source.folder):
        tokenizer = read_tokenizer(source.folder, read_prompts(source.folder).values())
        tokens = {number: token for token, number in Tokenizer.from_file(str(path)).get_vocab(True).items()}
    tokenizer |= {"truncation": None, "padding": None}
    tokenizer["post_processor"] = _post_processor(source.template, tokens, segment)
    if source.cleaning == "cort":
        # The filter of CoRT's authors precedes the normalizer.
        replace = {"type": "Replace", "pattern": {"Regex": OTHERS}, "content": " "}
        strip = {"type": "Strip", "strip_left": True, "strip_right": True}
        others = [tokenizer["normalizer"]] if tokenizer["normalizer"] else []
        tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [replace, strip, *others]}
    # The library writes it the same way, whatever version wrote the source.
    Tokenizer.from_str(json.dumps(tokenizer)).save(str(target / "tokenizer.json"))
    own = read_special_tokens(source.folder)
    settings = {
        **{key: own[key] for key in KEPT if own.get(key)},
        "pad_token": tokens[source.template.pad],
        "model_max_length": length,
        "model_input_names": ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"],
        "padding_side": "right",
        "truncation_side": "right",
        # "[SEP]" in a text stands for these letters.
        "split_special_tokens": True,
        # Reads tokenizer.json unchanged; a model's own class would rebuild parts of it.
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    _write_json(target / "tokenizer_config.json", settings)


def _post_processor(template: Template, tokens: dict[int, str], segment: int) -> dict[str, Any]:
    def framed(before: tuple[int, ...], name: str, after: tuple[int, ...], segment: int) -> list[dict[str, Any]]:
        first, last = (
            [{"SpecialToken": {"id": tokens[number], "type_id": segment}} for number in ids] for ids in (before, after)
        )
        return [*first, {"Sequence": {"id": name, "type_id": segment}}, *last]

    first = framed(template.before, "A", template.between, 0)
    second = framed((), "B", template.after, template.second_segment)
    used = {tokens[number]: number for number in (*template.before, *template.between, *template.after)}
    return {
        "type": "TemplateProcessing",
        "single": framed(template.before, "A", template.after, segment),
        "pair": [*first, *second],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in used.items()},
    }
