"""Sparse encoders: a weight for each token of the vocabulary (SPLADE; Formal et al., 2021), as modules of ST.

ST is sentence-transformers. A masked language model predicts the weights of a passage's tokens and of others, which
expand it. Queries are encoded by the same model, or without one: their tokens then have fixed weights (`queries: none`;
Geng et al., 2024).

On disk: a folder that `SparseEncoder` of ST loads, and the files of the tokenizer, which are ours.
"""

from __future__ import annotations

import copy
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.formats.tokens import Tokens
from cort.models.encoder import Texts
from cort.models.hub import reason_of
from cort.models.settings import FIX
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import TOKENIZER_FILES, check_length, count_tokens, place, single
from cort.system.errors import InputError, input_error
from cort.system.files import atomic_folder
from cort.system.imports import uncollected
from cort.system.interruption import Interrupted

# Segment ids tell queries from passages in our batches; the transformer sees the same segment in both.
SEGMENTS = {"passage": 0, "query": 1}
# ST's names of the tasks, by segment.
TASKS = ("document", "query")
# Tokens of a query without a model, if its tokenizer has no limit.
LONGEST = 100_000
# With normalised states of n numbers, the logits of a text's own tokens are up to sqrt(n) times the size of embeddings,
# and those of others are random, with this size as standard deviation. A new head subtracts so many sizes from both.
OWN, OTHERS = 0.31, 3.5


class SparseEncoder(nn.Module):
    """Map token ids to weights of the vocabulary's tokens, none negative and most of them 0."""

    def __init__(self, model: Any, template: Template) -> None:
        """Take a `SparseEncoder` of ST, and the template of its tokenizer."""
        super().__init__()
        self.model, self.template = model, template
        self.transformer = find(model, "document", "Transformer")
        self.fixed = find(model, "query", "SparseStaticEmbedding")

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Encode texts of one kind: ``input_ids`` and their masks, (batch, length), as (batch, vocabulary)."""
        task = TASKS[int(batch["token_type_ids"][0, 0])]
        features = batch | {"token_type_ids": torch.zeros_like(batch["token_type_ids"])}
        modules = modules_of(self.model, task)
        if [*map(name_of, modules)] == ["Transformer", "SpladePooling"]:
            weights = pooled(modules[1], modules[0](features)["token_embeddings"], batch["attention_mask"])
        else:
            weights = self.model(features, task=task)["sentence_embedding"]
        weights = single(weights)  # (batch, vocabulary)
        return top(weights, self.model.max_active_dims) if self.model.max_active_dims else weights

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference, in `precision`."""
        place(self, self.transformer.model, device, precision)

    def limit(self, query_length: int | None, passage_length: int | None) -> None:
        """Change lengths in tokens, special tokens included."""
        if passage_length:
            self.transformer.document_length = passage_length
        if query_length:
            self.transformer.query_length = query_length
            if self.fixed:
                self.fixed.tokenizer.model_max_length = query_length

    def texts(self, tokens: Tokens, kind: str) -> Texts:
        """Frame texts of a kind ("query" or "passage") as the model reads them."""
        if kind == "query" and self.fixed:
            length = min(self.fixed.tokenizer.model_max_length, LONGEST)
            return Texts(tokens, replace(self.template, before=(), after=()), length, SEGMENTS[kind])
        own = self.transformer.query_length if kind == "query" else self.transformer.document_length
        length = own or self.transformer.max_seq_length
        check_length(f"{kind}_length", length, self.template.extra + 1, self.transformer.model)
        return Texts(tokens, self.template, length, SEGMENTS[kind])


def pooled(pooling: Any, logits: Tensor, mask: Tensor) -> Tensor:
    """Pool logits (texts, length, vocabulary) as ST's module does, but take their maximum first.

    The order does not change the result, and the logits of all tokens need not be kept for the backward pass: on two
    cores, training takes a third of the time, encoding half of it.
    """
    if pooling.pooling_strategy != "max":
        summed: Tensor = pooling({"token_embeddings": logits, "attention_mask": mask})["sentence_embedding"]
        return summed
    if not bool(mask.all()):
        logits = logits.masked_fill(mask.unsqueeze(-1) == 0, 0.0)
    weights = logits.max(dim=1).values.relu().log1p()  # (texts, vocabulary)
    return weights.log1p() if pooling.activation_function == "log1p_relu" else weights


def top(weights: Tensor, most: int) -> Tensor:
    """Keep the greatest weights of each text, (texts, vocabulary)."""
    greatest = weights.topk(min(most, weights.shape[1]))
    return torch.zeros_like(weights).scatter(1, greatest.indices, greatest.values)


def modules_of(model: Any, task: str) -> list[nn.Module]:
    """List the modules of ST that texts of a task go through."""
    first, *others = model.children()
    return [*(first.sub_modules[task] if hasattr(first, "sub_modules") else [first]), *others]


def name_of(module: nn.Module) -> str:
    """Name the class of a module of ST; Transformer has a subclass for models of earlier releases."""
    names = [kind.__name__ for kind in type(module).__mro__]
    return "Transformer" if "Transformer" in names else names[0]


def find(model: Any, task: str, name: str) -> Any:
    """Return the module of a class that texts of a task go through, or None."""
    return next((module for module in modules_of(model, task) if name_of(module) == name), None)


def check_sparse(folder: str | Path, model: Any) -> None:
    """Refuse modules that do not give weights of the vocabulary's tokens, and prompts."""
    for task in TASKS:
        names = [*map(name_of, modules_of(model, task))]
        fixed = task == "query" and names == ["SparseStaticEmbedding"]
        if not fixed and not {"Transformer", "SpladePooling"} <= set(names):
            expected = "Transformer, a masked language model, and SpladePooling"
            raise input_error(folder, f"the modules {', '.join(names)}", expected, "set `kind: dense`, or name another")
    if prompts := [text for text in model.prompts.values() if text]:
        raise input_error(folder, f"the prompt {prompts[0]!r}", "a sparse encoder without prompts", "name another")


def load_sparse_encoder(folder: str | Path) -> SparseEncoder:
    """Load a model folder, in evaluation mode: one of ST, or a masked language model, which gets SPLADE's pooling."""
    with uncollected():
        from sentence_transformers import SparseEncoder as Model

    # It advises to train models without modules.json, and says how it loads them.
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    try:
        kwargs = {"use_safetensors": True, "dtype": torch.float32}
        model = Model(str(folder), device="cpu", local_files_only=True, model_kwargs=kwargs)
    except (InputError, Interrupted):
        raise
    except Exception as error:  # these libraries raise errors of many kinds
        found, expected = f"no complete model ({reason_of(error)})", "a sparse encoder of sentence-transformers"
        raise input_error(folder, found, expected, FIX) from error
    check_sparse(folder, model)
    template = load_template(tokenizer_folder(folder), count_tokens(find(model, "document", "Transformer").model))
    return SparseEncoder(model, template).eval()


def tokenizer_folder(folder: str | Path) -> Path:
    """Find the tokenizer of passages in a model folder; a released model with a router has it in a subfolder."""
    places = [Path(folder), *sorted(Path(folder).glob("document_*"))]
    return next((place for place in places if (place / "tokenizer.json").is_file()), Path(folder))


def new_sparse_encoder(base_model: str | Path, query_length: int, passage_length: int) -> SparseEncoder:
    """Put a new prediction head and SPLADE's pooling on a base model; one with modules of ST keeps its own."""
    if (Path(base_model) / "modules.json").is_file():
        return load_sparse_encoder(base_model)
    with uncollected():
        from sentence_transformers import SparseEncoder as Model
        from sentence_transformers.sparse_encoder.modules import SpladePooling, Transformer

    lengths = {"query_length": query_length, "document_length": passage_length, "max_seq_length": passage_length}
    kwargs = {"use_safetensors": True, "dtype": torch.float32}
    transformer = Transformer(str(base_model), transformer_task="fill-mask", model_kwargs=kwargs, **lengths)
    predict_own_tokens(transformer.model)
    model = Model(modules=[transformer, SpladePooling("max")], device="cpu", similarity_fn_name="dot")
    return SparseEncoder(model, load_template(base_model, count_tokens(transformer.model)))


def predict_own_tokens(model: Any) -> None:
    """Let a new prediction head predict a text's own tokens first, so that training starts from their matches.

    A head of random weights gives all tokens of the vocabulary about the same weight.
    """
    trained = {id(weight) for weight in model.base_model.parameters()}
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer.in_features == layer.out_features and id(layer.weight) not in trained:
            nn.init.eye_(layer.weight)
    embeddings = model.get_output_embeddings()
    size, width = embeddings.weight.norm(dim=1).mean().item(), embeddings.in_features
    nn.init.constant_(embeddings.bias, -size * min(OTHERS, OWN * width**0.5))


def without_query_model(encoder: SparseEncoder, weights: Tensor) -> SparseEncoder:
    """Let the tokens of queries have fixed weights, (vocabulary,), so that no model encodes them."""
    from sentence_transformers import SparseEncoder as Model
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding

    tokenizer = copy.deepcopy(encoder.transformer.tokenizer)
    tokenizer.model_max_length = encoder.transformer.query_length
    fixed = SparseStaticEmbedding(tokenizer, weights, frozen=True)
    router = Router.for_query_document([fixed], [*encoder.model.children()])
    return SparseEncoder(Model(modules=[router], device="cpu", similarity_fn_name="dot"), encoder.template)


def idf(passages: Tokens, vocabulary: int) -> Tensor:
    """Compute the inverse document frequency of each token id as Lucene does, (vocabulary,)."""
    counts, rows = np.zeros(vocabulary), len(passages)
    for row in range(rows):
        counts[np.unique(passages[row])] += 1
    return torch.from_numpy(np.log1p((rows - counts + 0.5) / (counts + 0.5)).astype(np.float32))


def save_sparse_encoder(encoder: SparseEncoder, tokenizer_folder: str | Path, folder: str | Path) -> None:
    """Write the model folder atomically."""
    with atomic_folder(folder) as temporary:
        encoder.model.save(str(temporary))
        # The token caches have the fingerprint of this tokenizer.json, not of one that is written anew.
        for name in TOKENIZER_FILES:
            shutil.copyfile(Path(tokenizer_folder) / name, temporary / name)
