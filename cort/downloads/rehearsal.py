"""The switch of a dress rehearsal: a catalogue in the working folder, of small files that this machine serves itself.

Only that file turns it on, and only for its own folder. Downloads are then kept elsewhere, everything made from other
files runs again, and report and provenance say that it is a rehearsal.
"""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path("rehearsal.yaml")
# Where all files of a rehearsal come from.
LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]+/[!-~]*")
NOTICE = "REHEARSAL WITH SMALL FILES, no number means anything"


def is_on() -> bool:
    """Tell whether the working folder belongs to a rehearsal."""
    return FILE.is_file()
