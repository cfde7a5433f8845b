import gc
import importlib
import subprocess
import sys

import pytest

from cort.runtime.imports import absent, placeholders, uncollected
from tests.support.imports import MODULES, ROOT

# The interface to results is for people, and gives pandas frames.
NO_STAGES = {"cort/__init__.py", "cort/api.py"}
STAGES = [
    path.removesuffix(".py").replace("/", ".") for path in MODULES if path.count("/") == 1 and path not in NO_STAGES
]
SLOW = {"torch", "transformers", "tokenizers", "pandas", "scipy", "matplotlib", "pytrec_eval"}
SLOW |= {"faiss", "ngtpy", "ir_datasets"}


def test_absent_affects_only_new_imports_and_only_inside(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("absent_one", "absent_two"):
        (tmp_path / f"{name}.py").touch()
    known = importlib.import_module("absent_one")
    with absent("absent_one", "absent_two"):
        assert importlib.import_module("absent_one") is known
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("absent_two")
    assert importlib.import_module("absent_two").__name__ == "absent_two"


def test_placeholders_have_any_name_and_end_with_the_block():
    with placeholders("missing_one", "missing_one.part", "json"):
        part = importlib.import_module("missing_one.part")
        assert isinstance(part.Anything, type)
        assert importlib.import_module("json") is sys.modules["json"]
        assert importlib.import_module("json").loads("[1]") == [1]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("missing_one.part")


def printed(program):
    """What a program prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def test_a_model_is_loaded_without_what_only_training_and_cards_of_sentence_transformers_need(make_encoder):
    program = (
        "import atexit, sys\nfrom cort.models.encoder import load_encoder\n"
        f"load_encoder({str(make_encoder())!r})\natexit._run_exitfuncs()\n"
        "print(*sorted({'datasets', 'sklearn', 'pandas', 'scipy.optimize', 'tabulate'} & sys.modules.keys()))\n"
        "import sklearn.metrics\nprint(sklearn.metrics.pairwise_distances([[0.0]], [[2.0]]).item())"
    )
    assert printed(program) == "\n2.0\n"


def test_garbage_collection_is_restored_to_what_it_was():
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


# Imports take 0.25 seconds for pandas, 1.3 for torch, 4 with transformers: command lines need none of them, nor does
# the workflow, which reads the registries whenever it starts.
@pytest.mark.parametrize(
    ("modules", "slow"), [(STAGES, SLOW), (["cort.retrieval.fusion", "cort.retrieval.indexes"], {*SLOW, "pyarrow"})]
)
def test_no_stage_and_no_registry_imports_a_slow_library_before_it_needs_it(modules, slow):
    assert printed(f"import sys, {', '.join(modules)}\nprint(*sorted({slow!r} & sys.modules.keys()))") == "\n"


def test_arrays_are_made_without_pandas_and_frames_with_it():
    program = (
        "import sys, cort.formats.tables, pyarrow\n"
        "table = pyarrow.table({'row': pyarrow.array([7])})\n"
        "print('pandas' in sys.modules, table.to_pandas()['row'].tolist())"
    )
    assert printed(program) == "False [7]\n"
