"""Models as modules of sentence-transformers: loaded from a folder after checks, and run on framed token ids.

A folder is trusted in nothing: weights must be safetensors that match the config, and no code but that of transformers
and sentence-transformers runs. What those libraries would do with a text, this project does in steps: `tokenize` makes
token ids, `cort.models.batching` frames them, and `TextModel` runs the modules.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, Rows
from cort.models.fused import fuse_activations
from cort.models.hub import open_tokenizer
from cort.models.layout import (
    CLASSES,
    LONGEST,
    MODULES,
    TASKS,
    Module,
    Settings,
    check_class,
    modules_of,
    read_prompts,
    refusing,
    transformer_settings,
)
from cort.models.light import PLAIN, Vectors
from cort.models.loading import CONVERT, check_tensors, check_transformer, without_flash
from cort.models.packing import can_pack, pack
from cort.models.precision import place
from cort.models.tokenizer import Template, check_vocabulary, load_tokenizer, template_of
from cort.models.transformer import check_length, count_tokens, forward_by_length, most_tokens, single
from cort.runtime.errors import input_error, shorten
from cort.runtime.imports import sentence_transformers, uncollected

# Modules that `TextModel` runs as sentence-transformers does.
KNOWN = (
    *("Transformer", "MLMTransformer", "Pooling", "Dense", "Normalize", "StaticEmbedding", "LogitScore"),
    *("SpladePooling", "SparseStaticEmbedding", "MultiVectorMask", "WordWeights", "Dropout", "LayerNorm"),
)
#: modules of this project -> their classes, by the name in modules.json
MODULE_CLASSES: dict[str, type[nn.Module]] = {}
PACKAGES = ("sentence_transformers.", "pylate.models.Dense.")
WEIGHTS = "model.safetensors"
# Modules with weights in a file of their own.
WEIGHTED = ("Dense", "StaticEmbedding", "SparseStaticEmbedding", "LayerNorm")
# Arguments of a transformer or its tokenizer that do not change the result; others could also name files elsewhere.
HARMLESS = {"add_pooling_layer", "attn_implementation", "dtype", "torch_dtype", "trust_remote_code", "padding_side"}
ARGUMENTS = tuple(f"{of}_{name}" for of in ("model", "config", "tokenizer", "processor") for name in ("args", "kwargs"))
CLASS_OF_TASK = {
    "feature-extraction": "AutoModel",
    "fill-mask": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "text-generation": "AutoModelForCausalLM",
}
ELSEWHERE = "use another model"


class Framing(NamedTuple):
    """How texts of a kind are framed, and truncated to a number of tokens."""

    template: Template
    length: int


class Texts(FramedTexts):
    """Texts of one kind, to be encoded."""

    def encode(self, model: nn.Module, rows: Rows, device: torch.device) -> Tensor:
        """Encode rows in sub-batches of similar length (`forward_by_length`); returns (len(rows), e)."""
        return forward_by_length(model, self.sequences(rows), device)  # (rows, e)

    def vectors(self, encoder: Any, rows: Rows, device: torch.device) -> Vectors:
        """Encode rows for an index: in single precision, and normalized to length 1 except for inner products."""
        with torch.inference_mode():
            vectors = self.encode(encoder, rows, device).float()  # (rows, e)
            found = functional.normalize(vectors, dim=-1) if encoder.unit_length else vectors
            return found.cpu().numpy()


class TextModel(nn.Module):
    """A model of sentence-transformers that runs on framed token ids.

    :ivar saved: the model, for saving; its layers are `layers`.
    """

    kind: str
    #: what the lengths of queries and of passages are called
    names = ("query_length", "passage_length")

    @classmethod
    def load(cls, folder: str | Path, precision: str = "fp32") -> Self:
        """Load a model folder in evaluation mode.

        :param precision: that the model will run in.
        """
        model = cls(load_modules(folder, cls.kind, precision))
        model.check_lengths(f"{folder}: ", folder)
        return model.eval()

    def __init__(self, model: Any, layers: Iterable[nn.Module] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(model.children() if layers is None else layers)
        self._saved, self._packs = (model,), False  # not registered: the layers are
        self.framings = {kind: framing_of(model, kind) for kind in TASKS}
        fuse_activations(self)
        for module in self.transformers():
            module.register_forward_hook(partial(_in_single_precision, module.module_output_name))

    @property
    def saved(self) -> Any:
        """The model of sentence-transformers."""
        return self._saved[0]

    @property
    def transformer(self) -> Any:
        """The transformer that reads passages; None for static embeddings."""
        return self.reader("passage")

    def reader(self, kind: str) -> Any:
        """Return the transformer that reads texts of a kind; None for static embeddings."""
        # One before it may only provide a tokenizer.
        readers = [module.model for module in route(self.saved, kind) if hasattr(module, "model")]
        return readers[-1] if readers else None

    def transformers(self) -> list[Any]:
        """List the modules that have a transformer."""
        return [module for module in self.modules() if _reads(module, "Transformer", "MLMTransformer")]

    def run(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Run framed texts of one kind, or pairs, through the layers; returns the features of all modules.

        :param batch: ``input_ids`` and the like, of shape (batch, length), and the ``task``.
        """
        features, task = dict(batch), batch.get("task")
        if not self._packs:
            features.pop("packing", None)
        if not self.framings[KINDS[task]].template.segments:
            del features["token_type_ids"]
        if type(route(self.saved, KINDS[task])[0]).__name__ == "StaticEmbedding":
            lengths = batch["attention_mask"].sum(1)  # (batch,)
            flat = batch["input_ids"][batch["attention_mask"].bool()]  # (tokens,)
            features |= {"input_ids": flat, "offsets": lengths.cumsum(0) - lengths}
        for layer in self.layers:
            takes_task = type(layer).__name__ == "Router" or "task" in getattr(layer, "forward_kwargs", ())
            features = layer(features, task=task) if takes_task else layer(features)
        return features

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference: transformers in `precision`, the layers after them in fp32."""
        place(self, device, precision, self.transformers_without_heads())
        self.pack(device, precision)

    def pack(self, device: torch.device, precision: str) -> None:
        """Have the transformers read sequences without padding, where that gives the same results."""
        readers = [module.model for module in self.transformers() if has_layers(module)]
        if readers and not self._packs and all(can_pack(reader, device, precision) for reader in readers):
            self._packs = True
            for reader in readers:
                pack(reader)

    @property
    def reads_no_padding(self) -> bool:
        """Whether padding costs little: layers do not read it, and those after them have few numbers per token."""
        return self._packs and self.kind != "sparse"

    def reads_alike(self) -> bool:
        """Tell whether queries and passages differ in their framing alone, and may go through the layers together."""
        (query, _), (passage, _) = self.framings.values()
        first, last = route(self.saved, "query"), route(self.saved, "passage")
        before = first[: -len(last)]
        alike = (query.pad, query.segments, query.left) == (passage.pad, passage.segments, passage.left)
        return alike and first[len(before) :] == last and not any(has_layers(module) for module in before)

    def transformers_without_heads(self) -> list[nn.Module]:
        """List the parts that may run in half precision."""
        return [module.model for module in self.transformers()]

    def texts(self, tokens: Tokens, kind: str) -> Any:
        """Make texts of a kind ("query" or "passage") that can be encoded."""
        return Texts(tokens, *self.framings[kind], kind)

    def start_from(self, folder: str | Path) -> None:
        """Take all weights of a trained model of the same kind and settings."""
        weights = self.load(folder).state_dict()
        check_tensors(folder, weights, self.state_dict(), "start from a model of the same settings")
        self.load_state_dict(weights)

    def check_lengths(self, place: str, folder: str | Path) -> None:
        """Refuse lengths that leave no room for text after the prompt or exceed the model's positions.

        :param folder: of the tokenizer and the prompts.
        """
        prompts = read_prompts(folder)
        for name, (kind, (template, length)) in zip(self.names, self.framings.items(), strict=True):
            if (reader := self.reader(kind)) is None:
                continue
            prompt, _ = prompts[kind]
            taken = len(load_tokenizer(folder, [prompt]).encode(prompt, add_special_tokens=False).ids) if prompt else 0
            check_length(f"{place}{name}", length, template.extra + 1, reader, taken)

    def save(self, folder: Path) -> None:
        """Write all files but the model card into a folder."""
        quiet(self.saved.save)(str(folder), create_model_card=False)
        for kind in TASKS:
            for module, saved in zip(route(self.saved, kind), modules_of(folder, kind), strict=True):
                if saved.name == "Transformer":
                    _write_argument(saved.folder, module.model)


def _write_argument(folder: Path, model: nn.Module) -> None:
    """Have a saved Transformer load without the pooler that it lacks, whose weights would be drawn."""
    takes = "add_pooling_layer" in inspect.signature(type(model).__init__).parameters
    if takes and getattr(model, "pooler", model) is None:
        path = folder / "sentence_bert_config.json"
        settings = json.loads(path.read_text(encoding="utf-8")) | {"model_kwargs": {"add_pooling_layer": False}}
        path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n", encoding="utf-8")


#: tasks of sentence-transformers -> kinds of texts; pairs have no task
KINDS = {task: kind for kind, task in TASKS.items()} | {None: "passage"}


def has_layers(module: Any) -> bool:
    """Tell whether a Transformer has layers, or only provides a tokenizer."""
    return bool(getattr(module.model.config, "num_hidden_layers", 1))


def quiet(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of sentence-transformers, whose log and bars are for programs of their own."""

    def run(*arguments: Any, **options: Any) -> Any:
        from transformers.utils import logging as bars

        logger = logging.getLogger("sentence_transformers")
        before = logger.level
        logger.setLevel(logging.ERROR)
        bars.disable_progress_bar()
        try:
            return call(*arguments, **options)
        finally:
            logger.setLevel(before)

    return run


def _reads(module: nn.Module, *names: str) -> bool:
    """Tell whether a module is one of these, with a tokenizer; DistilBERT has a layer named Transformer."""
    return type(module).__name__ in names and hasattr(module, "tokenizer")


def _in_single_precision(name: str, module: nn.Module, inputs: Any, features: dict[str, Any]) -> dict[str, Any]:
    return {**features, name: single(features[name])}


def route(model: Any, kind: str) -> list[Any]:
    """List the modules that texts of a kind go through."""
    modules: list[Any] = []
    for module in model.children():
        routed = type(module).__name__ == "Router"
        named = module._resolve_route(task=TASKS[kind], modality="text") if routed else ""
        modules += module.sub_modules[named] if routed else [module]
    return modules


def framing_of(model: Any, kind: str) -> Framing:
    """Find out how a model's tokenizer frames and truncates texts of a kind."""
    module = route(model, kind)[0]
    tokenizer = module.tokenizer
    if type(module).__name__ == "StaticEmbedding":
        return Framing(PLAIN, LONGEST)
    names = tokenizer.model_input_names
    pad = tokenizer.pad_token_id
    if pad is None:
        path = Path(tokenizer.name_or_path) / "tokenizer_config.json"
        raise input_error(path, "no pad_token", "a token that fills batches", "set it there")
    template = template_of(tokenizer.name_or_path, tokenizer.backend_tokenizer, pad, "token_type_ids" in names)
    if type(module).__name__ == "SparseStaticEmbedding":
        length = int(min(tokenizer.model_max_length, LONGEST))
        return Framing(Template((), (), (), 0, pad, template.vocabulary, segments=False), length)
    # A length that is set beyond the model's positions is refused by those who use it, not lowered.
    length = getattr(module, f"{TASKS[kind]}_length") or min(tokenizer.model_max_length, most_tokens(module.model))
    return Framing(template, int(min(length, LONGEST)))


def load_modules(folder: str | Path, kind: str, precision: str = "fp32") -> Any:
    """Load a model of a kind in `CLASSES`, in evaluation mode on the CPU.

    :param precision: that the model will run in: weights of this precision on disk are not converted.
    :raises InputError: names the first file, module or tensor that is wrong.
    """
    folder = Path(folder)
    library = sentence_transformers()
    check_folder(folder, kind)
    with uncollected():
        options = {"device": "cpu", "trust_remote_code": False, "local_files_only": True}
        kwargs = {"use_safetensors": True, "dtype": "float32" if precision == "fp32" else "auto"}
        for module in (*modules_of(folder, "passage"), *modules_of(folder, "query")):
            kwargs |= without_flash(module.folder, transformer_settings(module.folder).get("model_kwargs", dict))
        loader = getattr(library, CLASSES[kind])
        with refusing(folder, "no complete model", f"a {CLASSES[kind]} of sentence-transformers"):
            model = quiet(loader._load_with_module_classes)(str(folder), MODULE_CLASSES, model_kwargs=kwargs, **options)
            for module in model.modules():
                if _reads(module, "Transformer", "MLMTransformer", "SparseStaticEmbedding"):
                    open_tokenizer(Path(module.tokenizer.name_or_path), module.tokenizer)
    for name in TASKS:
        first = route(model, name)[0]
        if hasattr(first, "model"):
            vocabulary = max(first.tokenizer.get_vocab().values()) + 1
            check_vocabulary(folder, vocabulary, count_tokens(first.model))
    # Static embeddings may be in half precision, too.
    return (model.float() if precision == "fp32" else model).eval()


def check_folder(folder: Path, kind: str) -> None:
    """Refuse a folder that is not a model of this kind, or has modules, code or weights that may not be loaded."""
    check_class(folder, kind)
    modules = dict.fromkeys([*modules_of(folder, "passage"), *modules_of(folder, "query")])
    for module in modules:
        _check_module(folder, module, kind)


def _check_module(root: Path, module: Module, kind: str) -> None:
    custom = module.type and not module.type.startswith(PACKAGES) and module.type not in MODULE_CLASSES
    if custom or (module.name not in KNOWN and module.type not in MODULE_CLASSES):
        found = f"the module {shorten(module.type)}{', custom code' * bool(custom)}"
        raise input_error(root / MODULES, found, ", ".join(KNOWN), ELSEWHERE)
    if module.name in WEIGHTED and not (module.folder / WEIGHTS).is_file():
        raise input_error(module.folder, f"no safetensors weights of the module {module.name}", WEIGHTS, CONVERT)
    if module.name in WEIGHTED and (path := (own := Settings(module.folder / "config.json")).get("path")) is not None:
        raise input_error(own.path, f"weights in {shorten(str(path))}", f"weights in {WEIGHTS}", CONVERT)
    if module.name in ("Transformer", "MLMTransformer"):
        settings = transformer_settings(module.folder)
        default = {"sparse": "fill-mask", "cross_encoder": "sequence-classification"}.get(kind, "feature-extraction")
        task = settings.get("transformer_task", str) or (default if not module.type else "feature-extraction")
        if module.name == "MLMTransformer":
            task = "fill-mask"
        if task not in CLASS_OF_TASK:
            expected = " or ".join(CLASS_OF_TASK)
            raise input_error(settings.path, f"the Transformer task {shorten(task)}", expected, ELSEWHERE)
        _check_arguments(settings)
        arguments = settings.get("model_kwargs", dict) or {}
        more: dict[str, Any] = {key: value for key, value in arguments.items() if key == "add_pooling_layer"}
        # Stanford's models have their projection in the same file.
        trained = Settings(module.folder / "config.json").get("architectures") != ["HF_ColBERT"]
        check_transformer(module.folder, CLASS_OF_TASK[task], trained=trained, released=True, **more)


def _check_arguments(settings: Settings) -> None:
    """Refuse arguments of a Transformer that change its result, or where its files are."""
    given = {key: settings.get(key, dict) or {} for key in ARGUMENTS}
    odd = [f"{key} {shorten(name)}" for key, names in given.items() for name in sorted(names.keys() - HARMLESS)]
    odd += ["tokenizer_name_or_path"] if settings.get("tokenizer_name_or_path") else []
    if odd:
        found, expected = f"{odd[0]} of the Transformer", "no argument that changes the result"
        raise input_error(settings.path, found, expected, ELSEWHERE)
