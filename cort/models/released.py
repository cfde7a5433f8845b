"""Released encoders and re-rankers: loaded by sentence-transformers, changed as the user wants, and checked.

A plain transformers folder is read as sentence-transformers does: an encoder with mean pooling. What is saved gives the
same vectors and scores in this project and in sentence-transformers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cort.formats.shards import Tokens
from cort.models.batching import Sequences
from cort.models.building import TOKENS
from cort.models.cross_encoder import CrossEncoder
from cort.models.encoder import POOLINGS, SIMILARITIES, Encoder
from cort.models.late_interaction import LateInteraction
from cort.models.layout import PROMPTS, TASKS, check_released, is_encoder
from cort.models.loading import kind_of
from cort.models.modules import ELSEWHERE, TextModel, framing_of, load_modules, route
from cort.models.sparse_encoder import SparseEncoder
from cort.models.transformer import check_length, heads_of, most_tokens
from cort.runtime.command_line import option_of
from cort.runtime.errors import COMPLAINT_LENGTH, input_error, shorten

log = logging.getLogger(__name__)

# Names of prompts in the order in which sentence-transformers looks for them.
PROMPT_NAMES = {"query": ("query",), "passage": ("document", "passage", "corpus")}
# Names of labels in lower case. If labels only have numbers, such as LABEL_1, the last one means relevant.
RELEVANT = re.compile("relevant|related|positive|match|true|yes")
IRRELEVANT = re.compile("(not |non |no |ir|un|non)(relevant|related|match)|negative|false|no")
# Precision in which weights stay as they are on disk.
AS_STORED = "own"
# Texts that show how a model frames them. The longest, whose beginning is unlike its end, is truncated unless the limit
# is higher.
PROBES = ("a", "a title. And a text: 1 2 3?", "b a " + "a b " * 1_000)
FIRST = np.zeros(1, np.int64)


#: kinds of models that sentence-transformers has
MODELS: dict[str, type[TextModel]] = {
    "dense": Encoder,
    "sparse": SparseEncoder,
    "late_interaction": LateInteraction,
    "cross_encoder": CrossEncoder,
}


def load_released(folder: Path, kind: str, wanted: Mapping[str, Any]) -> Any:
    """Load an encoder or re-ranker with its weights as on disk; a masked language model gets SPLADE's pooling.

    :param wanted: settings, and names of prompts, that the user prefers to those in the model's files.
    :raises InputError: names what cannot be read, or what the model does not have.
    """
    stored = MODELS[kind].kind
    check_released(folder, stored)
    if kind == "late_interaction" and is_encoder(folder):
        model = _of_tokens(load_modules(folder, "encoder", AS_STORED))
    else:
        model = load_modules(folder, stored, AS_STORED)
    if kind == "cross_encoder":
        return _cross_encoder(folder, model, wanted)
    if kind == "dense":
        similarity = _similarity(folder, model, wanted.get("similarity"))
        if similarity == "inner_product" and type(model[-1]).__name__ == "Normalize" and "similarity" in wanted:
            del model[-1]
        model.similarity_fn_name = "dot" if similarity == "inner_product" else "cosine"
        _set_pooling(folder, model, wanted.get("pooling"))
    model.prompts, model.default_prompt_name = _prompts(folder, model, wanted), None
    _set_lengths(model, wanted, "max_length" if kind == "late_interaction" else "passage_length")
    if (dimension := wanted.get("dimension")) is not None:
        _truncate(model, dimension)
    released: TextModel = MODELS[kind](model)
    check_framing(folder, released)
    return released


def _of_tokens(encoder: Any) -> Any:
    """Make a late-interaction model of an encoder's vectors before their mean is taken, each of length 1.

    Layers after the mean are linear, so that the mean of their outputs is what they make of the mean.
    """
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    layers = [module for module in route(encoder, "passage") if type(module).__name__ in ("Transformer", "Dense")]
    for layer in layers[1:]:
        layer.module_input_name = layer.module_output_name = TOKENS
    modules = [*layers, Normalize(module_input_name=TOKENS), MultiVectorMask()]
    return MultiVectorEncoder(modules=modules, prompts=encoder.prompts, device="cpu").eval()


def _cross_encoder(folder: Path, model: Any, wanted: Mapping[str, Any]) -> CrossEncoder:
    """Prepare a cross-encoder; with two labels, the logit is relevant minus irrelevant."""
    module = route(model, "passage")[0]
    if model.default_prompt_name is not None and "message" not in module.modality_config:
        found = f"the prompt {shorten(model.default_prompt_name)} of a re-ranker without a chat template"
        raise input_error(folder / PROMPTS, found, "none", ELSEWHERE)
    if module.transformer_task == "sequence-classification":
        relevant = _relevant_label(module.model.config)
        if module.model.config.num_labels == 2:
            _join_labels(folder, module.model, relevant)
    if module.model.config.pad_token_id is None:
        module.model.config.pad_token_id = module.tokenizer.pad_token_id
    model.activation_fn = nn.Identity()
    longest = min(module.tokenizer.model_max_length, most_tokens(module.model))
    module.tokenizer.model_max_length = wanted.get("max_length") or longest
    if (length := wanted.get("query_length")) is not None:
        module.query_length = length
    reranker = CrossEncoder(model)
    reranker.check_lengths("--", folder)
    _check_pairs(folder, reranker)
    return reranker


def _similarity(folder: Path, model: Any, wanted: str | None) -> str:
    """Name the similarity of vectors as this project does."""
    if wanted is not None:
        return wanted
    name, unit = model.similarity_fn_name, type(model[-1]).__name__ == "Normalize"
    # For vectors of length 1, every similarity but Manhattan gives the same ranking.
    if unit and name in (*SIMILARITIES, "euclidean"):
        return "cosine"
    if name not in SIMILARITIES:
        raise input_error(folder / PROMPTS, f"similarity_fn_name {shorten(str(name))}", "cosine or dot", ELSEWHERE)
    return SIMILARITIES[name]


def _set_pooling(folder: Path, model: Any, wanted: str | None) -> None:
    """Choose the pooling; refuse one of a token that has not read the text."""
    for kind in TASKS:
        modules = route(model, kind)
        for module in modules:
            if type(module).__name__ != "Pooling":
                continue
            if wanted is not None:
                module.pooling_mode = POOLINGS[wanted]
            config = modules[0].model.config
            both = getattr(config, "use_bidirectional_attention", False)
            causal = getattr(config, "is_causal", None) or (kind_of(config) == "a decoder" and not both)
            modes = (module.pooling_mode,) if isinstance(module.pooling_mode, str) else module.pooling_mode
            if "cls" in modes and causal:
                found = "the pooling cls of a decoder, whose first token has not read the text"
                raise input_error(folder, found, "lasttoken or mean", "use the pooling of the model card")
            if "lasttoken" in modes and causal and not framing_of(model, kind).template.after:
                log.warning("%s: its tokenizer appends no token; the last token of the text is pooled", folder)


def _prompts(folder: Path, model: Any, wanted: Mapping[str, Any]) -> dict[str, str]:
    """Choose the prompts of queries and passages: those the user names, or those sentence-transformers would use."""
    known = {name: text for name, text in model.prompts.items() if text is not None}
    named = {name: text for name, text in known.items() if text}
    prompts, listed = {}, ", ".join(named) or "(none)"
    for kind, names in PROMPT_NAMES.items():
        if (name := wanted.get(f"{kind}_prompt_name")) is not None:
            if name not in named:
                expected = f"a prompt of {folder / PROMPTS}: {listed}"
                raise input_error(f"--{kind}-prompt-name", shorten(name), expected, "name one of these")
            names = (name,)
        own = next((known[name] for name in names if known.get(name)), "")
        prompts[TASKS[kind]] = wanted.get(f"{kind}_prompt", own)
    if not any(prompts.values()) and named and "query_prompt" not in wanted:
        log.warning("%s: none of its prompts (%s) is for queries or passages; none is used", folder, listed)
    return prompts


def _set_lengths(model: Any, wanted: Mapping[str, Any], of_passages: str) -> None:
    """Write down the lengths of queries and passages, so that nothing else decides them.

    :param of_passages: setting with the length of passages.
    """
    for kind, name in (("query", "query_length"), ("passage", of_passages)):
        module, length, option = route(model, kind)[0], wanted.get(name), option_of(name)
        if not hasattr(module, "model"):
            if length is not None and not hasattr(module.tokenizer, "model_max_length"):
                raise input_error(option, str(length), "none, as static embeddings read all tokens", "leave it out")
            if length is not None:
                module.tokenizer.model_max_length = length
            continue
        if length is None:
            # The length of a kind of texts takes precedence over that of all.
            own = getattr(module, f"{TASKS[kind]}_length") or int(module.tokenizer.model_max_length)
            length = min(own, most_tokens(module.model))
        else:
            check_length(option, length, framing_of(model, kind).template.extra + 1, module.model)
            if kind == "query" and module.query_expansion:
                module.query_length = None
                module.query_expansion = {**module.query_expansion, "length": length}
        setattr(module, f"{TASKS[kind]}_length", length)


def _truncate(model: Any, dimension: int) -> None:
    """Keep the first numbers of vectors, before they are normalized (Kusupati et al., 2022)."""
    from sentence_transformers.base.modules import Dense

    own = model.get_embedding_dimension()
    if dimension > own:
        raise input_error("--dimension", str(dimension), f"at most the model's {own}", "lower it")
    kept = Dense(own, dimension, bias=False, activation_function=nn.Identity(), init_weight=torch.eye(dimension, own))
    place = len(model) - (type(model[-1]).__name__ == "Normalize")
    model.insert(place, kept)


def check_framing(folder: Path, model: TextModel) -> None:
    """Compare how this project and sentence-transformers frame a few texts, or pairs.

    :raises InputError: if they differ, as with truncation on the left.
    """
    for kind, task in TASKS.items():
        module = route(model.saved, kind)[0]
        prompt = model.saved.prompts.get(task) or ""
        for probe in PROBES:
            theirs = module.preprocess([probe], prompt=prompt, task=task)
            tokens = _tokens(module, f"{prompt}{probe}")
            ours = model.texts(tokens, kind).sequences(FIRST)
            _refuse_difference(folder, kind, model.framings[kind].length, ours, theirs)


def _check_pairs(folder: Path, model: CrossEncoder) -> None:
    module = route(model.saved, "passage")[0]
    around = (model.prompt.query, model.prompt.passage) if model.prompt else (("", ""), ("", ""))
    # Sentence-transformers has no limit of queries alone.
    queries = PROBES if model.query_length is None else PROBES[:1]
    for pair in product(queries, PROBES):
        theirs = model.saved.preprocess([pair])
        sides = (_tokens(module, f"{start}{text}{end}") for text, (start, end) in zip(pair, around, strict=True))
        _refuse_difference(folder, "pairs of", model.max_length, model.pairs(*sides).sequences(FIRST, FIRST), theirs)


def _tokens(module: Any, text: str) -> Tokens:
    backend = getattr(module.tokenizer, "backend_tokenizer", module.tokenizer)
    backend.no_truncation()
    backend.no_padding()
    return Tokens.of_texts([np.array(backend.encode(text, add_special_tokens=False).ids, np.int32)])


def _refuse_difference(folder: Path, kind: str, length: int, ours: Sequences, theirs: Mapping[str, Any]) -> None:
    if ours.batch(FIRST)["input_ids"].reshape(-1).tolist() != theirs["input_ids"].reshape(-1).tolist():
        found = f"a tokenizer that frames or truncates {kind} texts in a way of its own"
        expected = f"special tokens around a text of up to {length} tokens, truncated on the right"
        raise input_error(folder, shorten(found, COMPLAINT_LENGTH)[1:-1], expected, ELSEWHERE)


def _relevant_label(config: Any) -> int:
    """Find the label that means relevant: the only one, or one of two by their names.

    :raises InputError: for labels that give no ranking, such as those of natural language inference, or that do not
        tell which one means relevant.
    """
    path, count = Path(config.name_or_path) / "config.json", int(config.num_labels)
    listed = shorten(", ".join(config.id2label.values()))[1:-1]
    if count not in (1, 2):
        expected = "1, or 2 of which one means relevant"
        raise input_error(path, f"{count} labels ({listed})", expected, "use a model for re-ranking")

    def means_relevant(number: int, name: str) -> bool | None:
        plain = re.sub(r"[\W_]+", " ", name).strip().lower()
        if plain in (f"label {number}", str(number)):
            return number == count - 1
        if IRRELEVANT.fullmatch(plain):
            return False
        return True if RELEVANT.fullmatch(plain) or (plain and count == 1) else None

    names = [config.id2label.get(number, "") for number in range(count)]
    meanings = [means_relevant(number, name) for number, name in enumerate(names)]
    numbers = config.label2id or {}
    contradicted = any(numbers.get(name, number) != number for number, name in enumerate(names))
    if contradicted or None in meanings or meanings.count(True) != 1:
        found = f"labels that do not tell which one means relevant ({listed})"
        found += " or a label2id that contradicts id2label" * contradicted
        fix = "name the labels in the order of the logits, which the model card or a few known pairs tell"
        raise input_error(path, found, 'id2label such as {"0": "irrelevant", "1": "relevant"}', fix)
    return meanings.index(True)


def _join_labels(folder: Path, classifier: Any, relevant: int) -> None:
    """Let the last layer of a head, which has two outputs, give their difference, the log-odds."""
    layers = (layer for head in heads_of(classifier) for layer in head.modules())
    last = [layer for layer in layers if isinstance(layer, nn.Linear)][-1]
    if last.out_features != 2:
        raise input_error(folder, f"a last layer of {last.out_features} outputs", "two", ELSEWHERE)
    for weights in last.parameters():
        weights.data = weights.data[[relevant]] - weights.data[[1 - relevant]]
    last.out_features = classifier.config.num_labels = classifier.num_labels = 1
