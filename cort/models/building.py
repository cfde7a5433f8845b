"""New models on a base model, as modules of sentence-transformers.

Queries and passages differ in their segment id, as in CoRT (section 3.2). In sentence-transformers, a tokenizer sets
it, so there are two routes. That of queries begins with a transformer that has no layers and one number per token, and
only provides its tokenizer; it continues with the transformer of the passages, whose weights are stored once.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cort.models.layout import refusing, tokenizer_folder
from cort.models.loading import check_transformer, without_flash
from cort.models.modules import CLASS_OF_TASK, quiet
from cort.models.tokenizer import FILTER, Template, load_template, read_special_tokens
from cort.models.transformer import count_tokens, reads_segments
from cort.runtime.imports import sentence_transformers

# Settings of the tokenizer that are kept. All others are written here, so that none names a class or custom code.
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "cls_token", "mask_token")
EMBEDDING, TOKENS, SCORES = "sentence_embedding", "token_embeddings", "scores"


def new_transformer(base_model: str | Path, segments: bool, seed: int, task: str = "feature-extraction") -> Any:
    """Load a base model as a Transformer module, without a pooler; a new head of one label is drawn from `seed`.

    :param segments: whether queries and passages differ in their segment ids.
    """
    more: dict[str, Any] = {"num_labels": 1} if task == "sequence-classification" else {}
    sentence_transformers()
    check_transformer(base_model, CLASS_OF_TASK[task], **more)
    from sentence_transformers.base.modules import Transformer

    torch.manual_seed(seed)
    kwargs = {"use_safetensors": True, "dtype": torch.float32, "local_files_only": True, **without_flash(base_model)}
    module = quiet(Transformer)(
        str(base_model), transformer_task=task, model_kwargs=kwargs, config_kwargs=more, unpad_inputs=False
    )
    if getattr(module.model, "pooler", None) is not None:
        # Not used by the layers; unused weights should be neither trained nor saved.
        module.model.pooler = None
    module.reads_segments = reads_segments(module.model, segments)
    return module


def set_tokenizer(module: Any, base_model: str | Path, length: int, segment: int, cleaning: str) -> None:
    """Give a Transformer module the tokenizer of a base model, which cleans, frames and truncates texts by itself.

    It cannot do the cleaning "fixed".

    :param length: tokens that a text, or a pair, is truncated to.
    :param segment: segment id of a single text; pairs keep theirs.
    """
    from transformers import PreTrainedTokenizerFast

    template = replace(load_template(base_model, count_tokens(module.model)), segment=segment)
    own = tokenizer_folder(base_model)
    names = ["input_ids", *(["token_type_ids"] if module.reads_segments else []), "attention_mask"]
    special = {name: token for name, token in read_special_tokens(own).items() if name in SPECIAL_TOKENS and token}
    tokenizer = framed(own / "tokenizer.json", template, cleaning)
    # No class of its own: those of models rebuild parts of tokenizer.json.
    module.processor = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=length,
        model_input_names=names,
        pad_token=tokenizer.id_to_token(template.pad),
        padding_side="right",
        truncation_side="right",
        # "[SEP]" in a text stands for these letters.
        split_special_tokens=True,
        **special,
    )


def framed(path: Path, template: Template, cleaning: str) -> Any:
    """Read a tokenizer, and have it clean and frame texts."""
    from tokenizers import Tokenizer, processors

    with refusing(path):
        content = json.loads(Tokenizer.from_file(str(path)).to_str()) | {"truncation": None, "padding": None}
    if cleaning == "cort":
        others = [content["normalizer"]] if content["normalizer"] else []
        content["normalizer"] = {"type": "Sequence", "normalizers": [*FILTER, *others]}
    tokenizer = Tokenizer.from_str(json.dumps(content))

    def part(before: Sequence[int], name: str, after: Sequence[int], segment: int) -> list[str]:
        first, last = ([f"{tokenizer.id_to_token(number)}:{segment}" for number in ids] for ids in (before, after))
        return [*first, f"${name}:{segment}", *last]

    first, second = template.before, template.second_segment
    used = {number: tokenizer.id_to_token(number) for number in (*first, *template.between, *template.after)}
    tokenizer.post_processor = processors.TemplateProcessing(
        single=part(first, "A", template.after, template.segment),
        pair=[*part(first, "A", template.between, 0), *part((), "B", template.after, second)],
        special_tokens=[(token, number) for number, token in used.items()],
    )
    return tokenizer


def routed(
    base_model: str | Path, segments: tuple[int, int], lengths: tuple[int, int], cleaning: str, seed: int
) -> tuple[Any, Any]:
    """Make a Router with the transformer of a base model, and different tokenizers of queries and passages.

    :param segments: segment ids of queries and of passages; `lengths` in tokens likewise.
    :param seed: also of the dropout in training, if no new layer is drawn afterwards.
    :returns: the router, and the Transformer module that sets the length and the expansion of queries.
    """
    module = new_transformer(base_model, segments[0] != segments[1], seed)
    from sentence_transformers.base.modules import Router

    set_tokenizer(module, base_model, lengths[1], segments[1] if module.reads_segments else 0, cleaning)
    module.query_length, module.document_length = lengths
    query = [module]
    if module.reads_segments and segments[0] != segments[1]:
        query = [_without_layers(module, lengths[0]), module]
        set_tokenizer(query[0], base_model, lengths[0], segments[0], cleaning)
        query[0].query_length = lengths[0]
    router = Router({"document": [module], "query": query}, default_route="document")
    return router, query[0]


def _without_layers(module: Any, length: int) -> Any:
    """Make a Transformer module without layers, which only provides a tokenizer."""
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 1, "num_hidden_layers": 0, "num_attention_heads": 1, "intermediate_size": 1}
    vocabulary, positions = count_tokens(module.model), max(length, 2)
    # All but the weights.
    empty = copy.deepcopy(module, {id(module.model): None})
    config = BertConfig(vocab_size=vocabulary, max_position_embeddings=positions, use_cache=False, **sizes)
    empty.model = BertModel(config)
    empty.model.pooler = None
    for parameter in empty.model.parameters():
        nn.init.zeros_(parameter).requires_grad_(False)
    empty.modality_config = {"text": {"method": "forward", "method_output_name": "last_hidden_state"}}
    empty.module_output_name, empty.reads_segments = "no_embeddings", True
    empty.query_length = empty.document_length = None
    return empty


def dense(width: int, size: int, seed: int, bias: bool, activation: nn.Module, output: str) -> Any:
    """Make a Dense module whose weights are drawn from `seed`."""
    from sentence_transformers.base.modules import Dense

    torch.manual_seed(seed)
    source = TOKENS if output == TOKENS else EMBEDDING
    return Dense(width, size, bias, activation, module_input_name=source, module_output_name=output)
