"""Tune parameters by grid search: k1 and b of BM25, or the weights of a fusion or of a re-ranker.

Usage: python -m cort.tune bm25 --index lucene --queries queries.train.parquet --qrels qrels.train.parquet
           --k1 0.6 0.8 1.0 --b 0.5 0.7 0.9 --samples 5 --sample-size 10000 --measure R@1000 --depth 1000 --seed 42
           --threads 2 --memory-mb 2000 --output tuned.json
       python -m cort.tune weights --runs cort.trec bm25.trec --parts cort bm25 --qrels qrels.validation.parquet
           --measure nDCG@10 --depth 1000 --output weights.json
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "bm25": "cort.retrieval.tune_bm25",
    "weights": "cort.retrieval.tune_weights",
}
main = main_of_commands("cort.tune", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
