"""Check the workflow by Snakemake's own lints, but for those that are not followed, each for a reason.

Usage: python -m scripts.lint_workflow
"""

import re
import subprocess
import sys

#: title of a lint -> why it is not followed
NOT_FOLLOWED = {
    "Specify a conda environment or container for each rule.": "all stages run in the one environment of the lock",
    "Mixed rules and functions in same snakefile.": "common.smk has functions alone; its docstring shows a rule",
    "Shell command directly uses variable LIMITS from outside of the rule": "limits of requests change no result",
    "Shell command directly uses variable config from outside of the rule": "nor does a folder with copies of files",
}


def lints() -> list[str]:
    """Run `snakemake --lint`; return its lints as "what for: title".

    :raises CalledProcessError: if it ends without lints and not well.
    """
    done = subprocess.run([sys.executable, "-m", "snakemake", "--lint"], capture_output=True, text=True, check=False)
    found, of = [], ""
    for line in (done.stdout + done.stderr).splitlines():
        if begun := re.match(r"Lints for (.*):$", line):
            of = begun[1]
        elif title := re.match(r"    \* (.*?):?$", line):
            found.append(f"{of}: {title[1]}")
    if not found:
        done.check_returncode()
    return found


def main() -> int:
    """Print the lints that are to be followed; 1 if there are any."""
    left = [line for line in lints() if line.partition(": ")[2] not in NOT_FOLLOWED]
    sys.stderr.write("".join(f"{line}\n" for line in left))
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
