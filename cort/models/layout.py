"""Where the parts of a model folder are; imports no torch.

A folder in the layout of sentence-transformers has ``modules.json``, which names its modules, and perhaps a Router
with different modules for queries and passages. Any other folder is one module, a transformer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from cort.formats.artifacts import Node, read_json
from cort.models.settings import FIX
from cort.runtime.checksums import checksum
from cort.runtime.errors import InputError, input_error, reason_of, shorten
from cort.runtime.interruption import Interrupted
from cort.runtime.program import program_of

MODULES, PROMPTS, ROUTER = "modules.json", "config_sentence_transformers.json", "router_config.json"
# Of a Pooling module: whether tokens of prompts count.
PROMPTED = "include_prompt"
#: what `cort.models.pair_prompt` puts around queries and passages
PAIR_PROMPT = "pair_prompt.json"
#: settings of a Transformer module; older releases of sentence-transformers named the file after the model
TRANSFORMER_SETTINGS = "sentence_*_config.json"
#: settings of an adapter (LoRA), which belongs to another model
ADAPTER = "adapter_config.json"
# Upper limit of a length in tokens and of a vector's size.
LONGEST = 100_000
#: libraries whose releases can change what a model computes
LIBRARIES = ("accelerate", "numpy", "sentence-transformers", "torch", "transformers")
#: kinds of models -> their classes in sentence-transformers, and what that library calls older ones
CLASSES = {
    "encoder": "SentenceTransformer",
    "cross_encoder": "CrossEncoder",
    "late_interaction": "MultiVectorEncoder",
    "sparse": "SparseEncoder",
}
OLD_NAMES = {"ColBERT": "MultiVectorEncoder"}
#: kinds of texts -> their names in sentence-transformers, for tasks and routes
TASKS = {"query": "query", "passage": "document"}


class Module(NamedTuple):
    """A module: its class without the package, its folder, and the class as the file names it."""

    name: str
    folder: Path
    type: str


class Settings:
    """Values of a JSON file. The file, or any of its keys, may be missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.node = read_json(path, FIX) if path.is_file() else Node(path, {})
        self.values: dict[str, Any] = self.node.of(dict)

    def get(self, key: str, kind: Any = None) -> Any:
        """Read the value of a key, and check it if a type is given; None if it is missing."""
        value = self.values.get(key)
        return value if value is None or kind is None else self.node[key].read(kind)


@contextmanager
def refusing(
    source: str | Path, problem: str = "no readable tokenizer", expected: str = "the tokenizer of the model"
) -> Iterator[None]:
    """Turn errors of libraries, which are of many kinds, into one about a file or folder."""
    try:
        yield
    except (InputError, Interrupted):
        raise
    except BaseException as error:
        # Panics of the tokenizers library do not derive from `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise input_error(source, f"{problem} ({reason_of(error)})", expected, FIX) from error


def has_modules(folder: str | Path) -> bool:
    """Tell whether a folder has the layout of sentence-transformers."""
    return (Path(folder) / MODULES).is_file()


def check_model(folder: Path, *indexes: str) -> None:
    """Refuse a folder with none of these files, or with an adapter (LoRA), which transformers may or may not load."""
    if adapters := sorted(path.name for path in folder.glob("adapter_*")):
        fix = "merge it into the weights with peft's merge_and_unload() and save that model with save_pretrained"
        raise input_error(folder, f"the adapter {shorten(adapters[0])}", "a model with complete weights", fix)
    if not any((folder / name).exists() for name in indexes):
        raise input_error(folder, "no config.json", "a transformers model folder", "name the folder of the model")


def modules_of(folder: str | Path, kind: str = "passage") -> list[Module]:
    """List the modules that texts of a kind go through, in order.

    :raises InputError: for a path outside the folder, or a route that does not exist.
    """
    folder = Path(folder)
    if not has_modules(folder):
        return [Module("Transformer", folder, "")]
    nodes = list(read_json(folder / MODULES, FIX).items())
    listed = [_module(folder, folder, node["type"].read(str), node["path"]) for node in nodes]
    return [part for module in listed for part in _resolve(module, folder, kind)]


def class_of(folder: Path) -> str | None:
    """Name the class of sentence-transformers that a folder in its layout is of; None for any other folder."""
    written = Settings(folder / PROMPTS).get("model_type", str) or CLASSES["encoder"]
    return OLD_NAMES.get(written, written) if has_modules(folder) else None


def check_class(folder: Path, kind: str) -> None:
    """Refuse a model in the layout of sentence-transformers that is of another kind in `CLASSES`."""
    if (found := class_of(folder)) not in (None, CLASSES[kind]):
        names = {name: text.replace("_", "-") for text, name in CLASSES.items()}
        told = f"{found}, a model of the kind {names.get(str(found), 'unknown')}"
        raise input_error(folder / PROMPTS, told, CLASSES[kind], "configure it as what it is")


def is_encoder(folder: Path) -> bool:
    """Tell whether sentence-transformers reads a folder as an encoder of one vector per text, as it does by default."""
    of_stanford = Settings(folder / "config.json").get("architectures") == ["HF_ColBERT"]
    return class_of(folder) == CLASSES["encoder"] or not (has_modules(folder) or of_stanford)


def check_released(folder: Path, kind: str) -> None:
    """Refuse a released model that is not of this kind in `CLASSES`.

    An encoder is a late-interaction model, too, if its vectors are means of token vectors, so that these are trained.
    """
    if kind != "late_interaction" or not is_encoder(folder):
        check_class(folder, kind)
        return
    if not has_modules(folder):
        return  # sentence-transformers takes the mean
    modules = modules_of(folder)
    form = [_form_of(module) for module in modules]
    of_mean = form[:2] == ["Transformer", "Pooling (mean)"] and {*form[2:]} <= {"Dense", "Normalize"}
    if not of_mean or modules_of(folder, "query") != modules:
        found = f"an encoder of {shorten(', '.join(form), 100)[1:-1]}"
        expected = (
            "the same for queries: Transformer, Pooling (mean), and perhaps Dense without activation or Normalize"
        )
        fix = "name a ColBERT model, or train one on the transformer as a base_model"
        raise input_error(folder / MODULES, found, expected, fix)


def _form_of(module: Module) -> str:
    """Name a module, with its pooling or activation."""
    settings = Settings(module.folder / "config.json")
    if module.name == "Pooling":
        # Older releases had a flag for each.
        flags = [key.removeprefix("pooling_mode_") for key, value in settings.values.items() if value is True]
        chosen = settings.get("pooling_mode") or [name.partition("_token")[0] for name in flags if name != PROMPTED]
        names = [chosen] if isinstance(chosen, str) else [*map(str, chosen)]
        names += ["without prompts"] if settings.get(PROMPTED) is False else []
        return f"Pooling ({', '.join(names)})"
    activation = str(settings.get("activation_function")).rpartition(".")[2] if module.name == "Dense" else "Identity"
    return module.name if activation == "Identity" else f"{module.name} with {activation}"


def _module(root: Path, parent: Path, reference: str, path: Node) -> Module:
    own = parent / path.read(str)
    if not own.resolve().is_relative_to(root.resolve()):
        raise path.complain(shorten(path.read(str)), "a folder beside this file")
    return Module(reference.rpartition(".")[2], own, reference)


def _resolve(module: Module, root: Path, kind: str) -> Iterator[Module]:
    if module.name != "Router":
        yield module
        return
    path = module.folder / ROUTER
    # Older releases named it after all modules.
    config = read_json(path if path.is_file() else module.folder / "config.json", FIX)
    types, routes = config["types"].read(dict[str, str]), config["structure"].read(dict[str, list[str]])
    default = config["parameters"].of(dict).get("default_route")
    route = routes.get(TASKS[kind], routes.get(default or next(iter(routes), "")))
    if route is None or not set(route) <= types.keys():
        raise config.complain(f"the routes {shorten(', '.join(routes))}", f"one for {TASKS[kind]}")
    for name in route:
        yield _module(root, module.folder, types[name], Node(config.source, name))


def tokenizer_folder(folder: str | Path, kind: str = "passage") -> Path:
    """Find the folder of the tokenizer that reads texts of a kind."""
    return modules_of(folder, kind)[0].folder


def read_prompts(folder: str | Path) -> dict[str, tuple[str, str]]:
    """Read what a model that this project saved has before and after texts of each kind; otherwise it is empty."""
    around = Settings(Path(folder) / PAIR_PROMPT)
    if around.values:
        return {kind: around.get(kind, tuple[str, str]) for kind in TASKS}
    prompts = Settings(Path(folder) / PROMPTS).get("prompts", dict[str, str | None]) or {}
    return {kind: (prompts.get(task) or "", "") for kind, task in TASKS.items()}


def read_length(folder: str | Path, kind: str) -> int | None:
    """Read the number of tokens that texts of a kind are truncated to; None for no limit."""
    own = tokenizer_folder(folder, kind)
    settings = transformer_settings(own)
    length = settings.get(f"{TASKS[kind]}_length", int) or settings.get("max_seq_length", int)
    return length or model_max_length(own)


def transformer_settings(folder: Path) -> Settings:
    """Open the settings of a Transformer module."""
    return Settings(next(iter(sorted(folder.glob(TRANSFORMER_SETTINGS))), folder / TRANSFORMER_SETTINGS))


def model_max_length(folder: Path) -> int | None:
    """Read the limit of a tokenizer, which without one is a huge floating-point number."""
    limit = Settings(folder / "tokenizer_config.json").get("model_max_length", float)
    return int(limit) if limit is not None and limit < 1e6 else None


def model_fingerprint(folder: str | Path) -> str:
    """Identify a model by the files that its results depend on."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix in {".safetensors", ".json", ".jinja"}:
            digest.update(f"{path.relative_to(folder).as_posix()} {checksum(path)}\n".encode())
    return digest.hexdigest()[:16]


def identity(module: str, options: Mapping[str, object], files: Iterable[str], model: str) -> str:
    """Identify a computation by everything that affects its result.

    :param module: the stage, whose code and imports count.
    :param options: those that change the result, without paths.
    :param files: paths whose content counts, in a fixed order.
    :param model: folder of the model that is used or trained.
    """
    parts = {
        "options": dict(options),
        "files": [checksum(path) for path in files],
        "model": model_fingerprint(model),
        "source": program_of(module),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
