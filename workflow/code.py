"""The code of a stage as a param of its rules, so that Snakemake runs them again when the stage does something else."""

from __future__ import annotations

import ast
import functools

from cort.system.program import CACHE, ROOT, program_of


@functools.cache
def code_of(stage: str) -> dict[str, str]:
    """Hash each file that `stage` (``"encode"``) imports, by path.

    :raises ValueError: when there is no such stage.
    """
    # Snakemake makes this folder too, but later.
    (ROOT / CACHE).parent.mkdir(exist_ok=True)
    module = f"cort.{stage}"
    found = program_of(module)
    if f"cort/{stage}.py" not in found:
        raise ValueError(f"workflow/rules: found code_of({stage!r}), expected a stage; name a module of cort/")
    return found


def read_code(param: str) -> dict[str, str] | None:
    """Read the code of a stage from the repr of a param; None if it is another param."""
    if not (param.startswith("{") and ".py'" in param):
        return None
    code: dict[str, str] = ast.literal_eval(param)
    return code
