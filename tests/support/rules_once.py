"""Rules that Snakemake parses once, wherever copies of their files are, which takes a fifth of each of its starts."""

import hashlib
import marshal
import os
from pathlib import Path

#: stands for the path of the file
PLACEHOLDER = "'/a file of rules'"


def remember_rules(folder):
    """Have Snakemake in this process, and in copies of it, keep in a folder what it makes of files of rules."""
    from snakemake import workflow

    parse = workflow.parse

    def parse_once(path, owner, linemap, rulecount=0):
        name = path.get_path_or_uri(secret_free=True)
        key = hashlib.sha256(f"{rulecount}\n{Path(name).read_text('utf-8')}".encode()).hexdigest()
        kept = Path(folder) / key
        if kept.exists():
            code, count, lines = marshal.loads(kept.read_bytes())  # noqa: S302 - written below
        else:
            lines = {}
            code, count = parse(path, owner, lines, rulecount=rulecount)
            code = code.replace(repr(name), PLACEHOLDER)
            new = kept.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps((code, count, lines)))
            new.rename(kept)
        linemap |= lines
        return code.replace(PLACEHOLDER, repr(name)), count

    workflow.parse = parse_once
