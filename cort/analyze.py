"""Analyse runs by depth, and what systems have in common.

Usage: python -m cort.analyze depths --candidates run.trec --scores scores.parquet --qrels qrels.parquet --depths 1 2 4
           8 16 --measures RR@10 nDCG@20 --system NAME --split dev --output depths.json
       python -m cort.analyze overlap --split eval --systems bm25 cort --runs bm25.trec cort.trec --queries
           queries.parquet --output overlap.json
       python -m cort.analyze agreement --split human --other model --queries human.parquet --other-queries
           model.parquet --qrels human.qrels.parquet --other-qrels model.qrels.parquet --per-query
           human.bm25.parquet human.cort.parquet --other-per-query model.bm25.parquet model.cort.parquet
           --output agreement.json
       python -m cort.analyze consistency --run repbert.trec --reference top1000.trec --reference-name top1000
           --depths 1 10 100 1000 --system repbert --split dev --output consistency.json
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "agreement": "cort.evaluation.analyze_agreement",
    "depths": "cort.retrieval.analyze_depths",
    "overlap": "cort.evaluation.analyze_overlap",
    "consistency": "cort.evaluation.analyze_consistency",
}
main = main_of_commands("cort.analyze", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
