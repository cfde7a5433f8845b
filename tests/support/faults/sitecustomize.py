"""Loaded from PYTHONPATH by every Python of a test's jobs: records where stages start, and makes chosen ones fail.

The environment variable FAULTS names a folder. A stage leaves a file *.seen there when it starts. Files *.fault, taken
in order, hold code for the first stage whose command line contains all of their words (see tests/support/slurm.py).
"""

import json
import os
import signal
import sys
from pathlib import Path


def meet_faults(folder: Path, words: list[str]) -> None:
    for path in sorted(folder.glob("*.fault")):
        fault = json.loads(path.read_text("utf-8"))
        if all(any(part in word for word in words) for part in fault["words"]):
            path.rename(path.with_suffix(".met"))
            exec(fault["code"], {"folder": folder})  # noqa: S102
            return


if "FAULTS" in os.environ and (stage := next((word for word in sys.orig_argv if word.startswith("cort.")), None)):
    faults = Path(os.environ["FAULTS"])
    seen = {name: os.environ.get(name) for name in ("SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES")}
    seen |= {"stage": stage, "heeds_warning": signal.getsignal(signal.SIGUSR1) != signal.SIG_IGN}
    (faults / f"{stage}.{os.getpid()}.seen").write_text(json.dumps(seen), "utf-8")
    meet_faults(faults, sys.orig_argv)
