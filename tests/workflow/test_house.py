import ast
import graphlib
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from tests.support.imports import MODULES, ROOT, module_file, named_in, names_of, program, tree_of
from tests.support.workflow import RULES, TOOLS, command_of, module_of, stage_modules

# From the lowest to the highest: a module may use all layers below, and its own package.
LAYERS = [{"cort"}, {"cort.runtime"}, {"cort.formats"}, {"cort.downloads", "cort.sources"}, {"cort.config"}]
LAYERS += [{"cort.models", "cort.evaluation"}, {"cort.training", "cort.retrieval"}, {"learners"}, {"cort.systems"}]
LAYERS += [{"experiment"}, {"cort.reporting", "cort.online", "cort.deployment"}]
LAYERS += [{"stages"}, {"workflow"}, {"scripts"}]
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
# Tells type checkers what `cort.open` is, which no stage imports.
FRONT_DOOR = ("cort/__init__.py", "cort/api.py")
# Used by every stage, or by the workflow alone; stages are those of rules.
APART = {"stages", "cort.runtime", "cort.config", "learners", "cort.systems", "experiment"}
# The sections of a config; the other modules of cort/config are about the experiment as a whole, above its systems.
SECTIONS = {
    "__init__",
    "collection",
    "entries",
    "evaluation",
    "fields",
    "lexical",
    "models",
    "paths",
    "systems",
    "training",
}
# Sections with the settings of losses, which training declares.
LEARNERS = {"learners", "top_level"}
IS_TEST = re.compile(r"tests\.(\w+\.)*test_")

SOURCES = sorted(
    str(path.relative_to(ROOT)) for top in ("cort", "workflow", "scripts") for path in (ROOT / top).rglob("*.py")
)
RULE_FILES = ["Snakefile", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "workflow").rglob("*.smk"))]
TESTS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def package_of(path):
    """The package of a file, or the kind of a file that is in none."""
    top, *parts = Path(path).with_suffix("").parts
    if top != "cort":
        return top
    if len(parts) == 1:
        return "cort" if parts == ["__init__"] else "stages"
    if parts[0] == "config" and parts[1] not in SECTIONS:
        return "learners" if parts[1] in LEARNERS else "experiment"
    return f"cort.{parts[0]}"


@cache
def imported_files(path):
    """Files of this project that a file imports, also in functions and for type checkers alone."""
    names = named_in(ast.walk(tree_of(path)))
    return {file for name in names if (file := module_file(name)) not in (None, path) and (path, file) != FRONT_DOOR}


def listed(faults, remedy=""):
    """Write faults one a line, with what to do."""
    return "\n".join(filter(None, [*faults, remedy]))


def fault(path, imported):
    """What is wrong with an import, if anything."""
    package, other = package_of(path), package_of(imported)
    if package == other == "stages":
        return f"{path}: imports {imported}, but no stage imports a stage; move what both need into a package"
    if package == other or LAYER_OF[package] > LAYER_OF[other]:
        return None
    why = "is in a higher layer" if LAYER_OF[package] < LAYER_OF[other] else "is another package of the same layer"
    return f"{path}: imports {imported}, but {other} {why} than {package}; move what both need to a lower layer"


def test_every_package_has_a_layer():
    assert {package_of(path) for path in SOURCES} <= LAYER_OF.keys()


def test_imports_go_down():
    faults = [fault(path, imported) for path in SOURCES for imported in sorted(imported_files(path))]
    assert not any(faults), listed(filter(None, faults))


@pytest.mark.parametrize(
    ("path", "imported", "part"),
    [
        ("cort/audit.py", "cort/index.py", "no stage imports a stage"),
        ("cort/online/neural.py", "cort/encode.py", "in a higher layer"),
        ("cort/runtime/cli.py", "cort/formats/runs.py", "in a higher layer"),
        ("cort/training/loop.py", "cort/retrieval/exact.py", "another package of the same layer"),
        ("cort/formats/runs.py", "cort/config/paths.py", "in a higher layer"),
        ("workflow/plan.py", "scripts/clean.py", "in a higher layer"),
    ],
)
def test_imports_that_go_up_are_found(path, imported, part):
    assert part in fault(path, imported)


def test_no_imports_go_in_circles():
    graph = {path: imported_files(path) for path in SOURCES}
    # A CycleError names the files.
    assert set(graphlib.TopologicalSorter(graph).static_order()) >= set(SOURCES)


def test_every_module_is_of_use_to_a_stage():
    used = set().union(*(program(stage) for stage in {command_of(rule) for rule in RULES} | TOOLS))
    unused = [path for path in MODULES if package_of(path) not in APART and path not in used]
    assert not unused, listed(unused, "no stage imports them; delete them")


def test_nobody_else_asks_for_a_kind_of_system():
    others = [path for path in (*SOURCES, *RULE_FILES) if not path.startswith("cort/systems/")]
    known = {"base", "live", "mistakes", "registry", "results", "timing"}
    asking = [
        f"{path}: cort.systems.{name}"
        for path in others
        for name in re.findall(r"\bcort\.systems\.(\w+)", (ROOT / path).read_text("utf-8"))
        if name not in known
    ]
    assert not asking, listed(asking, "ask the object in `Experiment.systems`; add a method to the class of the kind")


def test_modules_beside_the_packages_are_those_of_rules():
    tools = {name for name in TOOLS if (ROOT / "cort" / f"{name}.py").is_file()}
    assert stage_modules() == {module_of(rule) for rule in RULES}
    assert tools


def docstrings(tree):
    """The constants that are docstrings, and other statements of a text alone."""
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def result_paths(path):
    """Text in a file that spells a path under results/; messages have blanks, such paths have none."""
    tree = tree_of(path)
    left_out = docstrings(tree)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for node in texts:
        if node not in left_out and re.fullmatch(r"(\S*/)?results(/\S*)?", node.value):
            yield f"{path}:{node.lineno}: {node.value}"


def test_one_file_knows_where_results_lie():
    found = [line for path in SOURCES if not path.startswith("scripts/") for line in result_paths(path)]
    # A person names an experiment to search in, and the command finds what it opens.
    elsewhere = [line for line in found if not line.startswith(("cort/config/paths.py:", "cort/online/options.py:"))]
    assert not elsewhere, listed(elsewhere, "take the path from cort/config/paths.py; a stage gets it as an option")


def test_rules_take_paths_of_results_from_there():
    texts = {path: (ROOT / path).read_text("utf-8").splitlines() for path in RULE_FILES}
    lines = [
        f"{path}: {line.strip()}" for path, text in texts.items() for line in text if re.match(r"[^#]*results/", line)
    ]
    assert not lines, listed(lines, "take the path from cort/config/paths.py")


def test_tests_mirror_packages_and_stages():
    packages = {package.removeprefix("cort.") for package in LAYER_OF if package.startswith("cort.")}
    assert {path.name for path in (ROOT / "tests" / "cort").iterdir() if path.name != "__pycache__"} <= packages
    tested = {Path(path).stem.removeprefix("test_") for path in TESTS if path.startswith("tests/stages/")}
    assert tested <= stage_modules() | TOOLS | RULES.keys()
    assert {Path(path).parts[1] for path in TESTS} == {"cort", "stages", "workflow", "scripts", "end_to_end", "gpu"}


def test_no_test_file_imports_another():
    found = [f"{path}: imports {name}" for path in TESTS for name in sorted(names_of(path)) if IS_TEST.match(name)]
    assert not found, listed(found, "move what both need to tests/support/")


def test_the_wheel_has_all_files_of_the_package(tmp_path):
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "cort").rglob("*") if path.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    for name in (*files, "pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    subprocess.run([sys.executable, "-c", build], cwd=tmp_path / "tree", check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if name.startswith("cort/")} == files
