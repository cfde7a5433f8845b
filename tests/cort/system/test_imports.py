"""What is imported when a stage starts: nothing slow that it may not need."""

import gc
import importlib
import subprocess
import sys

import pytest

from cort.system.imports import absent, uncollected
from tests.support.imports import MODULES, ROOT, imports_of, names_of

ARROW = "cort/formats/arrow.py"
STAGES = [path.removesuffix(".py").replace("/", ".") for path in MODULES if path.count("/") == 1 and "__" not in path]
SLOW = {
    "torch",
    "transformers",
    "tokenizers",
    "pandas",
    "scipy",
    "matplotlib",
    "pytrec_eval",
    "faiss",
    "ngtpy",
    "hnswlib",
}


def test_what_is_absent_is_so_for_a_while_and_for_new_imports_alone(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("absent_one", "absent_two"):
        (tmp_path / f"{name}.py").touch()
    known = importlib.import_module("absent_one")
    with absent("absent_one", "absent_two"):
        assert importlib.import_module("absent_one") is known
        with pytest.raises(ModuleNotFoundError, match="No module named 'absent_two'"):
            importlib.import_module("absent_two")
    assert importlib.import_module("absent_two").__name__ == "absent_two"


def test_garbage_is_collected_again_afterwards_unless_it_was_not_before():
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_no_stage_imports_a_slow_library_before_it_needs_it():
    """A quarter of a second for pandas, 1.3 for torch, 4 with transformers; their command lines need none."""
    program = f"import sys, {', '.join(STAGES)}\nprint(*sorted({SLOW!r} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "\n"


def test_arrays_are_made_without_pandas_and_frames_with_it():
    program = (
        "import sys, cort.formats.tables, pyarrow\n"
        "table = pyarrow.table({'row': pyarrow.array([7])})\n"
        "print('pandas' in sys.modules, table.to_pandas()['row'].tolist())"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "False [7]\n"


@pytest.mark.parametrize("path", [path for path in MODULES if any("pyarrow" in name for name in names_of(path))])
def test_what_uses_pyarrow_imports_it_without_pandas(path):
    found, waiting = set(), [path]
    while waiting:
        if (one := waiting.pop()) not in found:
            found.add(one)
            waiting += imports_of(one)
    assert ARROW in found
