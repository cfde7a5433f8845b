"""The switch for a dress rehearsal: a catalogue in the working folder, of small files that this machine itself serves.

Only that file turns it on, and only for its own folder. Downloads are then kept elsewhere, all that was made from other
files runs again, and report and provenance say that it is a rehearsal.
"""

from pathlib import Path

FILE = Path("rehearsal.yaml")
NOTICE = "REHEARSAL WITH SMALL FILES, no number means anything"


def is_on() -> bool:
    """Whether the working folder is that of a rehearsal."""
    return FILE.is_file()
