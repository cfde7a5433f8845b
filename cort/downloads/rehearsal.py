"""The switch of a dress rehearsal: a catalogue in the working folder, of small files that this machine serves itself.

Nothing but that file turns it on, and for its own folder alone: what was fetched is kept elsewhere, all that was made
of other files runs again, and report and provenance say what they are made of.
"""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path("rehearsal.yaml")
# Files of a rehearsal come from nowhere else.
LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]+/[!-~]*")
NOTICE = "REHEARSAL WITH SMALL FILES, no number means anything"


def is_on() -> bool:
    """Tell whether the working folder is that of a rehearsal."""
    return FILE.is_file()
