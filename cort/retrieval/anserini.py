"""Anserini's own Java commands, run from the jar inside the installed pyserini package, which is not imported.

Anserini exits with status 0 after many failures: a query or file that raised an exception is merely missing from the
output. Java's log is therefore searched for stack traces and error lines, which count as failures.
"""

import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from cort.formats.artifacts import read_json, write_artifact
from cort.formats.cleaning import FORMS
from cort.runtime.errors import InputError, input_error, shorten
from cort.runtime.interruption import Requests
from cort.runtime.machine import java_home


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a command during the block, and kill it if the block raises.

    A signal that arrives while the command starts is delayed until it has started: raised inside `Popen`, it would
    leave a process that nothing ends.

    :param options: those of `subprocess.Popen`.
    """
    with ExitStack() as stack:
        with Requests(patient=True) as requests:
            process: subprocess.Popen[str] = stack.enter_context(subprocess.Popen(command, **options))
            stack.push(lambda raised, *_: process.kill() if raised else None)
        if requests.received is not None:
            signal.raise_signal(requests.received)
        yield process


ROOT = Path(__file__).parents[2]
MANIFEST = "manifest.json"
#: what an index of term weights has, instead of texts of a form
IMPACTS = "impacts"
#: how texts were cleaned (`cort.formats.cleaning`), or `IMPACTS`; the language of their analyser, none of impacts
Form: TypeAlias = tuple[str, str]
KEPT_LINES, KEPT_FAILURES = 1000, 5

log = logging.getLogger(__name__)

PROGRESS = re.compile(r"queries processed in|documents indexed|files completed")
FAILURE = re.compile(r"^\S+ \S+ (ERROR|FATAL) |^(Error|Error occurred|Exception in thread)\b|Terminating due to")
MESSAGE = re.compile(r"\(\w+\.java:\d+\) - (.*)")

# Lucene's limit of distinct terms in a query, and its error.
MOST_WORDS, TOO_MANY = 1024, "TooManyClauses"
REBUILD = "delete the index and build it again"
# Failures that a user can fix: pattern in Java's output -> remedy.
REMEDIES = (
    (re.compile(r"OutOfMemoryError|Too small maximum heap|GC overhead"), "raise mem_mb (--memory-mb)"),
    (re.compile(r"reserve enough space|Invalid maximum heap"), "lower mem_mb (--memory-mb) to what the machine has"),
    (
        re.compile(r"CorruptIndexException|IndexFormatTooNew|IndexFormatTooOld|IndexNotFoundException|EOFException"),
        REBUILD,
    ),
    (re.compile(TOO_MANY), f"shorten the queries with more than {MOST_WORDS} distinct terms"),
    (re.compile(r"No space left on device|Disk quota exceeded"), "free disk space, or write to another disk"),
)


def fat_jar() -> Path:
    """Find the jar of Anserini and its dependencies in the installed pyserini.

    :raises InputError: if pyserini is not installed, or has no such jar.
    """
    spec = importlib.util.find_spec("pyserini")
    folders = [Path(place) for place in spec.submodule_search_locations or []] if spec else []
    jars = sorted(jar for folder in folders for jar in folder.glob("resources/jars/anserini-*-fatjar.jar"))
    if len(jars) != 1:
        found = f"{len(jars)} jars" if spec else "no such package"
        raise input_error("pyserini", found, "one anserini-*-fatjar.jar in it", '`pip install "pyserini>=1.6,<2"`')
    return jars[0]


def run_java(
    main_class: str,
    arguments: Sequence[str],
    memory_mb: int,
    threads: int,
    folder: Path | None = None,
    limited: bool = True,
) -> list[str]:
    """Run a main class of Anserini, log its progress and return the last lines it wrote.

    :param memory_mb: the heap in MB; the process takes more.
    :param threads: processors that Java sees, which also determine the threads of its garbage collector.
    :param folder: working directory, because Anserini splits some paths at spaces.
    :param limited: refuse queries of more than `MOST_WORDS` distinct terms, as Lucene does unless code tells it.
    :raises InputError: for failures with a known remedy, such as lack of memory.
    :raises RuntimeError: for any other failure.
    """
    if memory_mb < 1 or threads < 1:
        raise input_error("--memory-mb, --threads", f"{memory_mb}, {threads}", "1 or more of each", "fix them")
    options = [
        f"-Xmx{memory_mb}m",
        # 1,000 queries at depth 1,000 take 5.2 s; with the default collector (G1) 6.8 s and twice the memory.
        "-XX:+UseParallelGC",
        f"-XX:ActiveProcessorCount={threads}",
        # Otherwise only a thread dies, and its query or file is lost silently.
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
    ]
    java = [str(java_home().absolute() / "bin" / "java"), *options, "-cp", str(fat_jar().absolute())]
    # Not `-m`: Python would import this module twice.
    unlimited = [sys.executable, "-c", f"from {__name__} import main; main()", " ".join(options)]
    command = [*(java if limited else unlimited), main_class, *arguments]
    python_path = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    with running(
        command,
        cwd=folder,
        # With this locale Java opens non-ASCII paths and writes numbers as "20,958".
        env={**os.environ, "LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(python_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        lines, failures = _follow(process.stdout or [])
        status = process.wait()
    if status or failures:
        # After an exit, the reason may be in the lines that follow the first error.
        raise _failure(main_class, status, [*failures, *lines[-3:]] if status else failures, memory_mb)
    return lines


def main() -> None:
    """Run a main class of Anserini in this process, after lifting Lucene's limit of terms in a query."""
    options, main_class, *arguments = sys.argv[1:]
    import jnius_config

    os.environ["JAVA_HOME"] = str(java_home())
    jnius_config.set_classpath(str(fat_jar()))
    jnius_config.add_options(*options.split())
    import jnius

    jnius.autoclass("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(2**31 - 1)
    jnius.autoclass(main_class).main(arguments)


def _follow(stream: Iterable[str]) -> tuple[list[str], list[str]]:
    """Log the progress in Java's output; return its last lines, and the first lines that report failures."""
    lines: deque[str] = deque(maxlen=KEPT_LINES)
    failures: list[str] = []
    for line in map(str.rstrip, stream):
        thrown = line.startswith("\tat ") and lines and not lines[-1].startswith("\tat ")
        suspect = lines[-1] if thrown else line
        if (thrown or FAILURE.search(line)) and suspect not in failures and len(failures) < KEPT_FAILURES:
            failures.append(suspect)
        message = MESSAGE.search(line)
        level = logging.INFO if PROGRESS.search(line) else logging.DEBUG
        log.log(level, "Anserini: %s", message.group(1) if message else line)
        lines.append(line)
    return list(lines), failures


def _failure(main_class: str, status: int, lines: Sequence[str], memory_mb: int) -> Exception:
    text = " | ".join(line.strip() for line in dict.fromkeys(lines))
    state = f"signal {-status}" if status < 0 else f"exit status {status}"
    source = f"java {main_class} (heap of {memory_mb} MB)"
    if remedy := _remedy(text):
        return input_error(source, f"{state}: {shorten(text, 400)}", "success", remedy)
    if status == -signal.SIGKILL:
        return input_error(source, state, "success", "give the job more memory than the heap, or lower --memory-mb")
    return RuntimeError(f"{source}: {state}: {' '.join(text.split())}")


def unreadable(index: str | Path, message: str) -> InputError:
    """Turn Lucene's message about an index that it cannot open or search into an error with a remedy."""
    fix = _remedy(message) or REBUILD
    return input_error(index, f"what Lucene cannot read ({shorten(message, 200)})", "the index that was built", fix)


def _remedy(message: str) -> str | None:
    return next((remedy for pattern, remedy in REMEDIES if pattern.search(message)), None)


def write_manifest(index: Path, passages: int, form: Form) -> None:
    """Record the files of a new index with their sizes, to detect damaged copies, and how to treat queries."""
    sizes = {path.name: path.stat().st_size for path in sorted(index.iterdir())}
    text, language = form
    write_artifact(index / MANIFEST, {"passages": passages, "text": text, "language": language, "files": sizes})


def check_manifest(index: str | Path, forms: Collection[str] = FORMS) -> Form:
    """Refuse a folder that is not a complete index of one of some forms; return its form.

    :param forms: how texts were cleaned, for BM25; or `IMPACTS`.
    """
    path = Path(index) / MANIFEST
    fix = f"build it with `python -m cort.index {IMPACTS if IMPACTS in forms else 'bm25'}`"
    try:
        manifest = read_json(path)
    except OSError:
        raise input_error(index, f"no complete {MANIFEST}", "the folder of an index", fix) from None
    sizes = manifest["files"].read(dict[str, int])
    form: str = manifest["text"].read(str)
    if not sizes or form not in forms:
        raise manifest.complain(f"no files, or the form {shorten(form)}", f"texts of the form {' or '.join(forms)}")
    for name, size in sizes.items():
        part = Path(index) / name
        found = f"{part.stat().st_size} bytes" if part.is_file() else "no file"
        if found != f"{size} bytes":
            raise input_error(part, found, f"{size} bytes", f"delete the folder and {fix}")
    return form, manifest["language"].read(str)
