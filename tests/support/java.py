"""Fake Java runtimes."""

from pathlib import Path


def make_java(home: Path, script: str, release: str | None = None) -> Path:
    """A folder that looks like a Java runtime; its `java` is a shell script."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
    return home
