import ast

import pytest

from tests.support.common import ROOT

FILES = sorted(path for folder in ("cort", "workflow", "scripts") for path in (ROOT / folder).rglob("*.py"))
#: The one module that opens pickles, of tensors alone.
IMPORT = ROOT / "cort" / "import_encoder.py"
PICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
CALLS = {"eval", "exec", "__import__"}


def faults(source, may_load=False):
    """Lines of a module that unpickle or trust code."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            if PICKLES & {name.partition(".")[0] for name in names}:
                yield node.lineno
            if (
                isinstance(node, ast.ImportFrom)
                and node.module == "torch"
                and "load" in {one.name for one in node.names}
            ):
                yield node.lineno
        if isinstance(node, ast.Call):
            yield from (node.lineno for _ in _faults_of_call(node, may_load))
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            if any(_is(key, "trust_remote_code") and not _is(value, False) for key, value in pairs):
                yield node.lineno
        if isinstance(node, ast.Subscript) and _is(node.slice, "trust_remote_code"):
            yield node.lineno


def _faults_of_call(node, may_load):
    called = ast.unparse(node.func)
    options = {word.arg: word.value for word in node.keywords}
    if called in ("torch.load", "torch.hub.load", "torch.jit.load") and not (may_load and called == "torch.load"):
        yield called
    if called == "torch.load" and not _is(options.get("weights_only"), True):
        yield called
    if called in ("np.load", "numpy.load") and "allow_pickle" in options and not _is(options["allow_pickle"], False):
        yield called
    if "trust_remote_code" in options and not _is(options["trust_remote_code"], False):
        yield called
    if called in CALLS:
        yield called


def _is(node, value):
    return isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_unpickles_or_trusts_code(path):
    assert list(faults(path.read_text("utf-8"), may_load=path == IMPORT)) == []


def test_rules_do_neither():
    for path in [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]:
        text = path.read_text("utf-8")
        assert not any(word in text for word in ("pickle", "torch", "trust_remote_code")), path


def test_the_import_loads_once():
    assert IMPORT.read_text("utf-8").count("torch.load(") == 1


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from pickle import loads", "import os, joblib.numpy_pickle", "from torch import load"),
        *(f"torch.load(path{more})" for more in ("", ", weights_only=False", ", weights_only=flag")),
        *("torch.hub.load('a', 'b')", "np.load(path, allow_pickle=True)", "eval(text)"),
        *(f"AutoModel.from_pretrained(name, trust_remote_code={value})" for value in ("True", "trusted")),
        *("options = {'trust_remote_code': True}", "options['trust_remote_code'] = True"),
    ],
)
def test_the_test_finds(source):
    assert list(faults(source, may_load=True)) == [1]


def test_outside_of_the_import_even_tensors_are_not_loaded():
    assert list(faults("torch.load(path, weights_only=True)")) == [1]
    assert list(faults("torch.load(path, weights_only=True)", may_load=True)) == []
