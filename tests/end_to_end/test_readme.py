"""Commands, options and files that README.md and docs/ name: help is asked for, goals and experiments are planned."""

import os
import re
import shlex
import subprocess
from functools import cache

import pytest

from tests.support.common import ROOT
from tests.support.forking import succeed

PAGES = sorted((ROOT / "docs").glob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
PYTHON = re.compile(r"(\.venv/bin/)?python3?")
SNAKEMAKE = re.compile(r"(\.venv/bin/)?snakemake")
TOPS = "cort|workflow|scripts|tests|docs|config|profiles"
PROGRAM = re.compile(rf"\s*(make|(\.venv/bin/)?(python3?|snakemake)|({TOPS})/[\w./-]+)( |$)")


def blocks(text):
    """Lines of code: indented by four, or fenced as a shell's or as nothing's."""
    for fence, inner in re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if fence in ("", "sh", "bash", "shell", "console"):
            yield from inner.splitlines()
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    # In a list, the text has four as well, and code has eight.
    in_list = re.search(r"^ {8}\S", prose, re.MULTILINE)
    yield from (
        line.strip() for line in prose.splitlines() if re.match(r" {8}[^\s-]" if in_list else r" {4}[^\s-]", line)
    )


# Commands of other programs, which these tests do not run.
OTHERS = re.compile(r"(curl|eval|\.venv/bin/pip install|python check\.py) ?")


def commands():
    """Every command of the documents, without comments, and where it stands."""
    found = {}
    for document in DOCUMENTS:
        text = document.read_text("utf-8")
        lines = [*blocks(text), *re.findall(r"`((?:make|snakemake|python -m) [^`]+)`", text)]
        for line in lines:
            for part in re.split(r"&&|;", re.sub(r"\s#.*", "", line).removeprefix("$ ")):
                if PROGRAM.match(part):
                    found.setdefault(part.strip(), document.name)
    return found


COMMANDS = commands()


def chosen(program):
    return sorted(command for command in COMMANDS if re.match(program, command))


def call(*words):
    # The tests may have been called by make themselves.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@cache
def help_of(module):
    return succeed(ROOT, module, "--help")


def options_of(words):
    return {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"}


def unknown_options(words, text):
    return {option for option in options_of(words) if not re.search(rf"{option}\b", text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_code_without_a_language_is_commands(page):
    lines = [re.sub(r"\s#.*", "", line) for line in blocks(page.read_text("utf-8"))]
    strange = [line for line in lines if not any(known.match(line) for known in (PROGRAM, OTHERS))]
    assert strange == [], "indent nothing but commands; output is ```text"


def test_the_documents_have_commands():
    assert chosen("make results")
    assert any("cort.search" in command for command in COMMANDS)


@pytest.mark.parametrize("command", chosen("make "))
def test_make_knows_its_goals(command):
    installed = ("--assume-old=.venv/.installed", "--assume-old=.venv/.installed-dev")
    status, output = call("make", "--dry-run", *installed, *shlex.split(command)[1:])
    # Some goals want a variable, and say so.
    assert status == 0 or "*** set " in output, f"{COMMANDS[command]}: {command}\n{output}"


@pytest.mark.parametrize("command", chosen(rf"{PYTHON.pattern} -m "))
def test_modules_take_their_options(command):
    _, _, module, *words = shlex.split(command)
    if re.fullmatch(r"[\w.]+", module):
        unknown = unknown_options(words, help_of(module))
        assert unknown == set(), f"{COMMANDS[command]}: {command}"


@pytest.mark.parametrize("command", chosen(rf"{SNAKEMAKE.pattern} "))
def test_snakemake_takes_its_options(command):
    words = shlex.split(command)[1:]
    assert unknown_options(words, help_of("snakemake")) == set(), f"{COMMANDS[command]}: {command}"


@pytest.mark.parametrize("command", chosen(rf"({TOPS})/"))
def test_programs_are_there(command):
    program = ROOT / shlex.split(command)[0]
    assert os.access(program, os.X_OK), f"{COMMANDS[command]}: {command}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_are_there(document):
    named = re.findall(rf"(?<![\w/.])((?:{TOPS})/[\w./-]*)(?![\w./-]*[*<{{])", document.read_text("utf-8"))
    # Files that the reader of an example, or `make verdict`, makes.
    named = set(named) - set(re.findall(r"^New, `(.*)`:$", document.read_text("utf-8"), re.MULTILINE))
    named = {name for name in named if not name.startswith("config/verdict/")}
    # `make plan TABLE=cort/1` names a file of config/tables.
    places = {name: (ROOT / name.rstrip("."), ROOT / "config" / "tables" / f"{name}.yaml") for name in named}
    gone = sorted(name for name, files in places.items() if not any(file.exists() for file in files))
    assert gone == [], f"{document.name} names files that are not there"
