"""The switch for a smoke test: a catalogue in the working folder, of small files that this machine itself serves.

Only that file turns it on, and only for its own folder. Downloads are then kept elsewhere, all that was made from other
files runs again, and report and provenance say that it is a smoke test.
"""

from pathlib import Path

FILE = Path("smoke-test.yaml")
NOTICE = "SMOKE TEST WITH SMALL FILES, no number means anything"


def is_on() -> bool:
    """Whether the working folder is that of a smoke test."""
    return FILE.is_file()
