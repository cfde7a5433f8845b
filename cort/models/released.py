"""Released encoders and re-rankers: reads what their files say they are, and converts them to this project's form.

A folder of sentence-transformers has ``modules.json``, which names the folders of its modules. A plain transformers
folder is read as sentence-transformers does, with mean pooling. This project's own folders are read, too. Only
safetensors and JSON are read; a model that comes with code of its own, or with a module that this project's models
cannot represent, is refused by name.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cort.formats.artifacts import Node, read_json
from cort.models.cross_encoder import CLASSIFIER, CrossEncoder, load_cross_encoder
from cort.models.encoder import Encoder, load_encoder
from cort.models.hub import CONVERT, Settings, check_weights, open_tokenizer
from cort.models.loading import LONGEST, check_numbers, check_tensors, load_transformer
from cort.models.settings import FIX, EncoderSettings, PairSettings
from cort.models.tokenizer import check_vocabulary
from cort.models.transformer import count_tokens, most_tokens
from cort.system.errors import input_error, shorten

log = logging.getLogger(__name__)

INDEX, PROMPTS = "modules.json", "config_sentence_transformers.json"
# Modules, and the file that each needs in its folder; Normalize has nothing to save.
MODULES = {"Transformer": "config.json", "Pooling": "config.json", "Dense": "config.json", "Normalize": None}
ENCODER = re.compile(r"Transformer Pooling( Dense)*( Normalize)?")
POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
# How older files name the pooling: a truth value for each.
POOLING_KEYS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
SIMILARITIES = {"cosine": "cosine", "dot": "inner_product", "dot_product": "inner_product"}
ACTIVATIONS = {"Tanh": "tanh", "Identity": "identity"}
# Names of prompts in the order in which sentence-transformers looks for them.
PROMPT_NAMES = {"query": ("query",), "passage": ("document", "passage", "corpus")}
TASKS = ("feature-extraction", "sequence-classification")
# Arguments of a transformer or its tokenizer that do not change the result.
HARMLESS = {"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "padding_side"}
ARGUMENTS = tuple(f"{of}_{name}" for of in ("model", "config", "tokenizer", "processor") for name in ("args", "kwargs"))
# Names of labels in lower case. If labels only have numbers, such as LABEL_1, the last one means relevant.
RELEVANT = re.compile("relevant|related|positive|match|true|yes")
IRRELEVANT = re.compile("(not |non |no |ir|un|non)(relevant|related|match)|negative|false|no")
# Longest limit, in tokens, that a config may have.
LONGEST_TEXT = 65_536
SPECIAL = 2
ELSEWHERE = "use another model"


@dataclass(frozen=True)
class Files:
    """A model's modules in order, each with its folder."""

    folder: Path
    modules: list[tuple[str, Path]]

    @property
    def transformer(self) -> Path:
        """Folder of the transformer, which also has the tokenizer."""
        return self.of("Transformer")[0]

    def of(self, kind: str) -> list[Path]:
        """Folders of the modules of a kind."""
        return [path for name, path in self.modules if name == kind]


@dataclass(frozen=True)
class Overrides:
    """Settings and names of prompts that the user prefers to those in the model's files; None leaves a prompt."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    query_prompt_name: str | None = None
    passage_prompt_name: str | None = None


def load_released_encoder(folder: Path, overrides: Overrides, fix: str) -> tuple[Encoder, Any]:
    """Load an encoder and its tokenizer; no weights are drawn.

    :raises InputError: names the module that cannot be read.
    """
    if (folder / EncoderSettings.FILE).is_file():
        encoder = load_encoder(folder)[0]
        encoder.settings = replace(encoder.settings, **overrides.settings)
        return encoder, open_tokenizer(folder, fix)
    files = _read_files(folder, ENCODER)
    similarity = _similarity(files)
    pooling = overrides.settings.get("pooling") or _pooling(files)
    prompts = _prompts(files, overrides)
    _check_pooled_prompts(files, {**prompts, **overrides.settings})
    trained = not _names_head(files.transformer)
    model: Any = load_transformer(files.transformer, trained=trained, fix=fix, decoder=pooling == "last")
    tokenizer, limits = _tokenizer(files, model, fix)
    projection, activation = _projection(files, model.config.hidden_size)
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
    encoder = Encoder(model, replace(settings, **overrides.settings))
    if encoder.projection and projection:
        encoder.projection.load_state_dict(projection.state_dict())
    return encoder, tokenizer


def load_released_reranker(folder: Path, overrides: Overrides, fix: str) -> tuple[CrossEncoder, Any]:
    """Load a re-ranker and its tokenizer; with two labels, the logit is relevant minus irrelevant."""
    if (folder / PairSettings.FILE).is_file():
        reranker = load_cross_encoder(folder)[0]
        reranker.settings = replace(reranker.settings, **overrides.settings)
        return reranker, open_tokenizer(folder, fix)
    files = _read_files(folder, re.compile("Transformer"))
    index = Settings(files.folder / PROMPTS)
    if (name := index.get("default_prompt_name")) is not None:
        raise input_error(index.path, f"the prompt {shorten(name)} of a re-ranker", "none", ELSEWHERE)
    relevant = _relevant_label(files.transformer)
    classifier: Any = load_transformer(files.transformer, CLASSIFIER, trained=True, fix=fix)
    if classifier.config.num_labels == 2:
        _join_labels(files.transformer, classifier, relevant)
    tokenizer, limits = _tokenizer(files, classifier, fix)
    length = overrides.settings.get("max_length") or limits["max_seq_length"]
    # Truncating the longer text, as sentence-transformers does, leaves a query half of the room.
    settings = PairSettings(query_length=max((length - 1) // 2, SPECIAL + 1), max_length=length)
    return CrossEncoder(classifier, replace(settings, **overrides.settings)), tokenizer


def _read_files(folder: Path, order: re.Pattern[str]) -> Files:
    """List a model's modules; a plain transformers folder is a Transformer alone.

    :param order: the sequence of modules that can be read, as words.
    """
    index = folder / INDEX
    if not index.is_file():
        log.info("%s: has no %s and is read as a plain transformers model", folder, INDEX)
        files = Files(folder, [("Transformer", folder)])
    else:
        files = Files(folder, [_module(folder, node) for node in read_json(index, FIX).items()])
        kinds = " ".join(kind for kind, _ in files.modules)
        if not order.fullmatch(kinds):
            of_encoder = "Transformer, Pooling, any number of Dense, optionally Normalize"
            expected = of_encoder if order is ENCODER else "Transformer"
            raise input_error(index, f"the modules {kinds.replace(' ', ', ') or '(none)'}", expected, ELSEWHERE)
    check_weights(files.transformer)
    for name in ("config.json", "tokenizer_config.json"):
        if code := Settings(files.transformer / name).get("auto_map"):
            found = f"custom code, auto_map {shorten(str(code))}"
            raise input_error(files.transformer / name, found, "a model class of transformers", ELSEWHERE)
    return files


def _module(folder: Path, node: Node) -> tuple[str, Path]:
    kind, path = (node[key].read(str) for key in ("type", "path"))
    package, _, name = kind.rpartition(".")
    custom = package.partition(".")[0] != "sentence_transformers"
    if custom or name not in MODULES:
        found = f"the module {shorten(kind)}{', custom code' * custom}"
        raise input_error(node.source, found, ", ".join(MODULES), ELSEWHERE)
    own = folder / path
    if not own.resolve().is_relative_to(folder.resolve()):
        raise input_error(node.source, f"the module {name} in {shorten(path)}", "a folder beside it", ELSEWHERE)
    if (needed := MODULES[name]) and not (own / needed).is_file():
        raise input_error(own, f"no {needed} of the module {name}", f"the files that {INDEX} names", FIX)
    return name, own


def _pooling(files: Files) -> Any:
    """Read the pooling, as `EncoderSettings` names it."""
    if not files.of("Pooling"):
        log.info("%s: has no Pooling module; the mean of all tokens is used", files.folder)
        return "mean"
    settings = Settings(files.of("Pooling")[0] / "config.json")
    modes = settings.get("pooling_mode")
    if modes is None:
        keys = [key for key in settings.values if key.startswith("pooling_mode_") and settings.get(key, bool)]
        modes = [POOLING_KEYS.get(key, key.removeprefix("pooling_mode_")) for key in keys]
    names = list(map(str, modes)) if isinstance(modes, list) else [str(modes)]
    if len(names) != 1 or names[0] not in POOLINGS:
        found = f"the Pooling {shorten(', '.join(names))}"
        raise input_error(settings.path, found, f"one of {', '.join(POOLINGS)}", ELSEWHERE)
    return POOLINGS[names[0]]


def _similarity(files: Files) -> Any:
    """Read the similarity of vectors, as `EncoderSettings` names it."""
    settings = Settings(files.folder / PROMPTS)
    name, unit = settings.get("similarity_fn_name", str) or "cosine", bool(files.of("Normalize"))
    # For vectors of length 1, every similarity but Manhattan gives the same ranking.
    if unit and name in (*SIMILARITIES, "euclidean"):
        return "cosine"
    if name not in SIMILARITIES:
        raise input_error(settings.path, f"similarity_fn_name {shorten(name)}", "cosine or dot", ELSEWHERE)
    return SIMILARITIES[name]


def _prompts(files: Files, overrides: Overrides) -> dict[str, str]:
    """Choose the prompts of queries and passages: those the user names, or those sentence-transformers would use."""
    settings = Settings(files.folder / PROMPTS)
    known: dict[str, str] = settings.get("prompts", dict[str, str]) or {}
    default = settings.get("default_prompt_name", str)
    listed = ", ".join(known) or "(none)"
    if default is not None and default not in known:
        raise input_error(settings.path, f"default_prompt_name {shorten(default)}", f"one of {listed}", ELSEWHERE)
    prompts = {}
    for kind, names in PROMPT_NAMES.items():
        if (wanted := getattr(overrides, f"{kind}_prompt_name")) is not None:
            if wanted not in known:
                expected = f"a prompt of {settings.path}: {listed}"
                raise input_error(f"--{kind}-prompt-name", shorten(wanted), expected, "name one of these")
            names = (wanted,)
        prompts[f"{kind}_prompt"] = next((known[name] for name in names if known.get(name)), "")
    if not any(prompts.values()) and any(known.values()):
        log.warning("%s: none of its prompts (%s) is for queries or passages; none is used", settings.path, listed)
    return prompts


def _check_pooled_prompts(files: Files, prompts: Mapping[str, Any]) -> None:
    """Refuse prompts whose tokens the model leaves out of the pooling."""
    used = any(prompts.get(f"{kind}_prompt") for kind in PROMPT_NAMES)
    for folder in files.of("Pooling"):
        settings = Settings(folder / "config.json")
        if used and settings.get("include_prompt", bool) is False:
            raise input_error(settings.path, "a Pooling without the prompt", "include_prompt true", ELSEWHERE)


def _projection(files: Files, width: int) -> tuple[nn.Linear | None, Any]:
    """Multiply the Dense modules into one; only the last may have an activation."""
    if not files.of("Dense"):
        return None, "tanh"
    weight, bias = torch.eye(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
    activation = "identity"
    for folder in files.of("Dense"):
        if activation != "identity":
            raise input_error(folder, "a Dense after one with an activation", "one of them", ELSEWHERE)
        settings = Settings(folder / "config.json")
        activation = _activation(settings)
        tensors = _dense(folder, settings, len(weight))
        weight = tensors["weight"] @ weight
        bias = tensors["weight"] @ bias + tensors.get("bias", 0)
    linear = nn.Linear(width, len(weight))
    linear.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    # Numbers beyond single precision have become infinite.
    check_numbers(files.of("Dense")[-1], linear.state_dict(), FIX)
    return linear, activation


def _activation(settings: Settings) -> str:
    features = {settings.get(f"module_{side}_name", str) or "sentence_embedding" for side in ("input", "output")}
    if settings.get("use_residual", bool) or features != {"sentence_embedding"}:
        found = "a Dense with a residual or another input or output than sentence_embedding"
        raise input_error(settings.path, found, "a plain Dense on the embedding", ELSEWHERE)
    written = "activation_function" in settings.values
    name: str = settings.node["activation_function"].read(str) if written else "torch.nn.modules.activation.Tanh"
    short = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or short not in ACTIVATIONS:
        raise input_error(settings.path, f"a Dense with {shorten(name)}", " or ".join(ACTIVATIONS), ELSEWHERE)
    return ACTIVATIONS[short]


def _dense(folder: Path, settings: Settings, width: int) -> dict[str, Tensor]:
    path = folder / "model.safetensors"
    rows, columns = (settings.node[f"{side}_features"].within(int, 1, LONGEST) for side in ("out", "in"))
    if columns != width:
        raise input_error(settings.path, f"in_features {columns}", f"{width}, the size of its input", FIX)
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        fix = FIX if path.is_file() else CONVERT
        raise input_error(folder, f"no safetensors weights of the module Dense ({error})", path.name, fix) from error
    linear = nn.Linear(columns, rows, bias=settings.get("bias", bool) is not False, device="meta")
    check_tensors(path, tensors, {f"linear.{name}": value for name, value in linear.state_dict().items()}, FIX)
    return {name.removeprefix("linear."): value.double() for name, value in tensors.items()}


def _tokenizer(files: Files, model: nn.Module, fix: str) -> tuple[Any, dict[str, int]]:
    """Load the tokenizer and read the lengths that texts are truncated to."""
    from tokenizers import normalizers

    path = next(iter(sorted(files.transformer.glob("sentence_*_config.json"))), files.transformer / "none")
    settings = Settings(path)
    for key in ARGUMENTS:
        if odd := (settings.get(key, dict) or {}).keys() - HARMLESS:
            found = f"{key} {shorten(min(odd))} of the Transformer"
            raise input_error(path, found, "no argument that changes the result", ELSEWHERE)
    if (task := settings.get("transformer_task", str)) not in (None, *TASKS):
        raise input_error(path, f"the Transformer task {shorten(str(task))}", " or ".join(TASKS), ELSEWHERE)
    tokenizer = open_tokenizer(files.transformer, fix)
    check_vocabulary(files.transformer, max(tokenizer.get_vocab().values()) + 1, count_tokens(model))
    if tokenizer.truncation_side != "right":
        raise input_error(files.transformer, "a tokenizer that truncates on the left", "on the right", ELSEWHERE)
    if settings.get("do_lower_case", bool):
        normalizer = tokenizer.backend_tokenizer.normalizer
        steps = [normalizers.Lowercase(), *([normalizer] if normalizer else [])]
        tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(steps)
    most = min(most_tokens(model), LONGEST_TEXT)
    longest = min(settings.limit("max_seq_length") or int(tokenizer.model_max_length), most)
    limits = {name: min(settings.limit(name) or longest, most) for name in ("query_length", "document_length")}
    if "token_type_ids" not in tokenizer.model_input_names:
        _join_segments(tokenizer)
    return tokenizer, {**limits, "max_seq_length": longest}


def _join_segments(tokenizer: Any) -> None:
    """Put both texts of a pair in one segment, as for a model whose tokenizer gives it no segment ids."""
    from tokenizers import Tokenizer

    content = json.loads(tokenizer.backend_tokenizer.to_str())
    for part in (content["post_processor"] or {}).get("pair", []):
        for piece in part.values():
            piece["type_id"] = 0
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))


def _names_head(folder: Path) -> bool:
    """Tell whether the config says that the weights include a head, which an encoder leaves out."""
    import transformers

    names = Settings(folder / "config.json").get("architectures", list[str]) or []
    return any(re.search("For|Head", name) and hasattr(transformers, name) for name in names)


def _relevant_label(folder: Path) -> int:
    """Find the label that means relevant: the only one, or one of two by their names.

    :raises InputError: for labels that give no ranking, such as those of natural language inference, or that do not
        tell which one means relevant.
    """
    settings = Settings(folder / "config.json")
    named: dict[str, str] = settings.get("id2label", dict[str, str]) or {}
    count = len(named) or settings.get("num_labels", int) or 2
    listed = shorten(f" ({', '.join(named.values())})" if named else "")[1:-1]
    if count not in (1, 2):
        expected = "1, or 2 of which one means relevant"
        raise input_error(settings.path, f"{count} labels{listed}", expected, "use a model for re-ranking")
    names = [named.get(str(number), "" if named else f"LABEL_{number}") for number in range(count)]
    plain = [re.sub(r"[\W_]+", " ", name).strip().lower() for name in names]
    relevant, irrelevant = (
        [number for number, name in enumerate(plain) if pattern.fullmatch(name)] for pattern in (RELEVANT, IRRELEVANT)
    )
    if unnamed := all(name in (f"label {number}", str(number)) for number, name in enumerate(plain)):
        relevant = [count - 1]
    elif count == 1 and plain[0] and not irrelevant:
        relevant = [0]
    numbers = settings.get("label2id", dict[str, int]) or {}
    contradicted = any(numbers.get(name, number) != number for number, name in enumerate(names))
    if contradicted or len(relevant) != 1 or len(irrelevant) != (0 if unnamed else count - 1):
        found = f"labels that do not tell which one means relevant{listed}"
        found += " or a label2id that contradicts id2label" * contradicted
        fix = "name the labels in the order of the logits, which the model card or a few known pairs tell"
        raise input_error(settings.path, found, 'id2label such as {"0": "irrelevant", "1": "relevant"}', fix)
    return relevant[0]


def _join_labels(folder: Path, classifier: Any, relevant: int) -> None:
    """Replace the last layer of a head, which has two outputs, by one that gives their difference, the log-odds."""
    base = set(classifier.base_model.modules())
    linears = {name: layer for name, layer in classifier.named_modules() if isinstance(layer, nn.Linear)}
    last = [name for name, layer in linears.items() if layer not in base and layer.out_features == 2]
    if len(last) != 1:
        raise input_error(folder, f"a head with {len(last)} layers of two outputs", "one", ELSEWHERE)
    old = linears[last[0]]
    new = nn.Linear(old.in_features, 1, bias=old.bias is not None)
    with torch.no_grad():
        for name, value in old.named_parameters():
            new.get_parameter(name).copy_(value[[relevant]] - value[[1 - relevant]])
    parent, _, child = last[0].rpartition(".")
    setattr(classifier.get_submodule(parent), child, new)
    classifier.config.num_labels = classifier.num_labels = 1
