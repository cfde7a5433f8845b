"""Released encoders and re-rankers: what their own files say they are, and their weights in this project's form.

Read are folders of sentence-transformers (``modules.json`` and what it names), plain ones of transformers, for which
sentence-transformers takes the mean of all tokens, and this project's own. Safetensors and JSON alone; code that comes
with a model is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from cort.models.cross_encoder import CLASSIFIER, CrossEncoder, load_cross_encoder
from cort.models.encoder import Encoder, load_encoder
from cort.models.hub import Settings, open_tokenizer
from cort.models.loading import load_transformer
from cort.models.modules import (
    ELSEWHERE,
    ORDER,
    PROMPTS,
    Asked,
    Files,
    check_pooled_prompts,
    pooling_of,
    projection_of,
    prompts_of,
    read_files,
    similarity_of,
)
from cort.models.settings import EncoderSettings, PairSettings
from cort.models.tokenizer import check_vocabulary
from cort.models.transformer import count_tokens, most_tokens
from cort.system.errors import InputError, input_error, shorten

TASKS = ("feature-extraction", "sequence-classification")
# Arguments of a transformer or its tokenizer that change none of its numbers.
HARMLESS = {"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "padding_side"}
ARGUMENTS = tuple(f"{of}_{name}" for of in ("model", "config", "tokenizer", "processor") for name in ("args", "kwargs"))
# Names of labels, in lower case. Of those that have only numbers, such as LABEL_1, the last means relevant.
RELEVANT = re.compile("relevant|related|positive|true|yes|match")
IRRELEVANT = re.compile("(not |non |no |ir|un|non)(relevant|related|match)|negative|false|no")
# Tokens: the longest limit that a config takes.
LONGEST = 65_536
SPECIAL = 2


def load_released_encoder(folder: Path, asked: Asked, fix: str) -> tuple[Encoder, Any]:
    """Load an encoder and its tokenizer; nothing is drawn.

    :raises InputError: names the module that cannot be read.
    """
    if (folder / EncoderSettings.FILE).is_file():
        encoder = load_encoder(folder)[0]
        encoder.settings = replace(encoder.settings, **asked.settings)
        return encoder, open_tokenizer(folder, fix)
    files = read_files(folder, ORDER)
    similarity = similarity_of(files)
    pooling = asked.settings.get("pooling") or pooling_of(files)
    prompts = prompts_of(files, asked)
    check_pooled_prompts(files, {**prompts, **asked.settings})
    trained = not _names_head(files.transformer)
    model: Any = load_transformer(files.transformer, trained=trained, fix=fix, decoder=pooling == "last")
    tokenizer, limits = _tokenizer(files, model, fix)
    projection, activation = projection_of(files, model.config.hidden_size)
    settings = EncoderSettings(
        pooling=pooling,
        dimension=projection.out_features if projection else model.config.hidden_size,
        query_length=limits["query_length"],
        passage_length=limits["document_length"],
        similarity=similarity,
        projection=projection is not None,
        query_segment=0,
        passage_segment=0,
        activation=activation,
        **prompts,
    )
    encoder = Encoder(model, replace(settings, **asked.settings))
    if encoder.projection and projection:
        encoder.projection.load_state_dict(projection.state_dict())
    return encoder, tokenizer


def load_released_reranker(folder: Path, asked: Asked, fix: str) -> tuple[CrossEncoder, Any]:
    """Load a re-ranker and its tokenizer; of two labels the logit is that of the relevant one minus the other's."""
    if (folder / PairSettings.FILE).is_file():
        reranker = load_cross_encoder(folder)[0]
        reranker.settings = replace(reranker.settings, **asked.settings)
        return reranker, open_tokenizer(folder, fix)
    files = read_files(folder, re.compile("Transformer"))
    index = Settings(files.folder / PROMPTS)
    if (name := index.get("default_prompt_name")) is not None:
        raise input_error(index.path, f"the prompt {shorten(name)} of a re-ranker", "none", ELSEWHERE)
    relevant = _relevant_label(files.transformer)
    classifier: Any = load_transformer(files.transformer, CLASSIFIER, trained=True, fix=fix)
    if classifier.config.num_labels == 2:
        _join_labels(files.transformer, classifier, relevant)
    tokenizer, limits = _tokenizer(files, classifier, fix)
    length = asked.settings.get("max_length") or limits["max_seq_length"]
    # Cutting the longer text, as sentence-transformers does, leaves a query half of the room.
    settings = PairSettings(query_length=max((length - 1) // 2, SPECIAL + 1), max_length=length)
    return CrossEncoder(classifier, replace(settings, **asked.settings)), tokenizer


def _tokenizer(files: Files, model: nn.Module, fix: str) -> tuple[Any, dict[str, int]]:
    """Load the tokenizer, and find the lengths in tokens that texts are cut to."""
    from tokenizers import normalizers

    own = next(iter(sorted(files.transformer.glob("sentence_*_config.json"))), files.transformer / "none")
    settings = Settings(own)
    for key in ARGUMENTS:
        if odd := (settings.get(key, dict) or {}).keys() - HARMLESS:
            raise input_error(own, f"{key} {shorten(min(odd))} of the Transformer", "none that changes it", ELSEWHERE)
    if (task := settings.get("transformer_task", str)) not in (None, *TASKS):
        raise input_error(own, f"the Transformer task {shorten(str(task))}", " or ".join(TASKS), ELSEWHERE)
    tokenizer = open_tokenizer(files.transformer, fix)
    check_vocabulary(files.transformer, max(tokenizer.get_vocab().values()) + 1, count_tokens(model))
    if tokenizer.truncation_side != "right":
        raise input_error(files.transformer, "a tokenizer that cuts on the left", "on the right", ELSEWHERE)
    if settings.get("do_lower_case", bool):
        rest = tokenizer.backend_tokenizer.normalizer
        parts = [normalizers.Lowercase(), *([rest] if rest else [])]
        tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(parts)
    most = min(most_tokens(model), LONGEST)
    whole = min(settings.limit("max_seq_length") or int(tokenizer.model_max_length), most)
    names = ("query_length", "document_length")
    limits = {name: min(settings.limit(name) or whole, most) for name in names}
    if "token_type_ids" not in tokenizer.model_input_names:
        _join_segments(tokenizer)
    return tokenizer, {**limits, "max_seq_length": whole}


def _join_segments(tokenizer: Any) -> None:
    """Have both texts of a pair in one segment, as the model gets no other from a tokenizer that names none."""
    from tokenizers import Tokenizer

    content = json.loads(tokenizer.backend_tokenizer.to_str())
    for part in (content["post_processor"] or {}).get("pair", []):
        for piece in part.values():
            piece["type_id"] = 0
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))


def _names_head(folder: Path) -> bool:
    """Tell whether the config says that the weights are those of a model with a head, which an encoder leaves out."""
    import transformers

    names = Settings(folder / "config.json").get("architectures", list[str]) or []
    return any(re.search("For|Head", name) and hasattr(transformers, name) for name in names)


def _relevant_label(folder: Path) -> int:
    """Find the label of a classifier that means relevant: the only one, or one of two by their names.

    :raises InputError: labels that order nothing, such as those of inference, or that do not say which is which.
    """
    settings = Settings(folder / "config.json")
    named: dict[str, str] = settings.get("id2label", dict[str, str]) or {}
    count = len(named) or settings.get("num_labels", int) or 2
    listed = shorten(f" ({', '.join(named.values())})" if named else "")[1:-1]
    if count not in (1, 2):
        expected = "1, or 2 of which one is relevant"
        raise input_error(settings.path, f"{count} labels{listed}", expected, "use a model for re-ranking")
    names = [named.get(str(number), "" if named else f"LABEL_{number}") for number in range(count)]
    plain = [re.sub(r"[\W_]+", " ", name).strip().lower() for name in names]
    relevant, irrelevant = (
        [number for number, name in enumerate(plain) if sort.fullmatch(name)] for sort in (RELEVANT, IRRELEVANT)
    )
    if unnamed := all(name in (f"label {number}", str(number)) for number, name in enumerate(plain)):
        relevant = [count - 1]
    elif count == 1 and plain[0] and not irrelevant:
        relevant = [0]
    numbers = settings.get("label2id", dict[str, int]) or {}
    contradicted = any(numbers.get(name, number) != number for number, name in enumerate(names))
    if contradicted or len(relevant) != 1 or len(irrelevant) != (0 if unnamed else count - 1):
        found = f"labels that do not tell which means relevant{listed}{' or label2id of other numbers' * contradicted}"
        fix = "name them so, in the order of the model's logits, which its makers or a few known pairs tell"
        raise input_error(settings.path, found, 'id2label such as {"0": "irrelevant", "1": "relevant"}', fix)
    return relevant[0]


def _join_labels(folder: Path, classifier: Any, relevant: int) -> None:
    """Replace the last layer of a head, which has two outputs, by one with their difference: the log-odds."""
    other = 1 - relevant
    base = set(classifier.base_model.modules())
    linear = nn.Linear
    found = [(name, one) for name, one in classifier.named_modules() if isinstance(one, linear) and one not in base]
    last = [(name, one) for name, one in found if one.out_features == 2]
    if len(last) != 1:
        raise _odd_head(folder, len(last))
    name, old = last[0]
    new = linear(old.in_features, 1, bias=old.bias is not None)
    with torch.no_grad():
        new.weight.copy_(old.weight[[relevant]] - old.weight[[other]])
        if old.bias is not None:
            new.bias.copy_(old.bias[[relevant]] - old.bias[[other]])
    parent, _, child = name.rpartition(".")
    setattr(classifier.get_submodule(parent), child, new)
    classifier.config.num_labels = classifier.num_labels = 1


def _odd_head(folder: Path, count: int) -> InputError:
    return input_error(folder, f"a head with {count} layers of two outputs", "one", ELSEWHERE)
