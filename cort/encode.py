"""Encode texts: to one unit vector each (CoRT, section 3.4), a vector per token (ColBERT), or token weights (SPLADE).

Vectors do not depend on the number of shards, and an interrupted shard resumes after its last finished block, even if
the number of shards has changed since (`cort/models/shards.py`).

Usage: python -m cort.encode vectors --model encoders/cort/best --tokens passages.arrow --kind passage --shard 1-of-4
           --output passages.1-of-4.arrow
       python -m cort.encode tokens --model rerankers/late/best --tokens passages.arrow --shard 1-of-4
           --output passages.1-of-4.arrow
       python -m cort.encode impacts --model encoders/splade/best --tokens passages.arrow --kind passage --shard 1-of-4
           --output passages.1-of-4.parquet
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "vectors": "cort.models.encode_vectors",
    "tokens": "cort.models.encode_tokens",
    "impacts": "cort.retrieval.encode_impacts",
}
main = main_of_commands("cort.encode", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
