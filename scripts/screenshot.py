"""Take a picture of a page of results with Chromium, for the documentation.

Usage: python -m scripts.screenshot --page results/pydocs/report/explore/test/index.html --output picture.png
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Milliseconds of the page's own clock: far more than it needs.
TIME = 20_000
# Few, because pictures of text need no more, and the repository keeps every version.
COLOURS = 128


def main(argv: list[str] | None = None) -> int:
    """Write the picture; 1 without a browser or a page."""
    parser = argparse.ArgumentParser(prog="python -m scripts.screenshot", description=__doc__)
    parser.add_argument("--page", required=True, help="file, with #ADDRESS of what it shows")
    parser.add_argument("--output", required=True, type=Path, help="PNG")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=960)
    args = parser.parse_args(argv)
    file, _, address = args.page.partition("#")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None or not Path(file).is_file():
        missing = f"no browser, expected one of {', '.join(BROWSERS)}" if browser is None else f"no page {file}"
        sys.stderr.write(f"found {missing}\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "page.png"
        command = [browser, "--headless", "--hide-scrollbars", f"--screenshot={picture}", f"--user-data-dir={folder}"]
        # The sandbox of Chromium does not start for root, as whom containers run.
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        command += [f"--window-size={args.width},{args.height}", f"--virtual-time-budget={TIME}"]
        page = Path(file).absolute().as_uri() + (f"#{address}" if address else "")
        subprocess.run([*command, page], check=True, capture_output=True, timeout=300)
        with Image.open(picture) as shown:
            shown.convert("RGB").quantize(COLOURS).save(args.output, optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
