"""Expand passages by predicted queries (doc2query): predict or import them.

Usage: python -m cort.expand predict --model base_models/t5 --tokens passages.arrow --queries 40 --shard 1-of-4
           --output passages.1-of-4.parquet
       python -m cort.expand import --predictions predicted_queries_topk_sampling.zip --queries 40
           --passages passages.parquet --output expansions.parquet
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "predict": "cort.retrieval.expand_predict",
    "import": "cort.retrieval.expand_import",
}
main = main_of_commands("cort.expand", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
