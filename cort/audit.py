"""Compare an approximate index with exact search: recall, time per query, and loss of effectiveness.

For each search width (epsilon of an ONNG, ef of an HNSW index, probes of an IVF-PQ index) and each depth: the share
of results that score as the exact ones (a twin of the last is no miss), the time per query, and how far the
experiment's measures fall below those of the exact ranking. Queries are timed one at a time in one thread, after a
warm-up, with the vectors of exact search in memory if they fit. They are a sample of the judged queries. An ef below
the depth is skipped: it keeps too few.

Usage: python -m cort.audit graph --passages 1-of-2.arrow 2-of-2.arrow --queries queries.arrow --qrels qrels.parquet
           --kind hnsw --index hnsw --widths 1000 2000 --depths 10 100 1000 --measures RR@10 R@1000 --sample 500
           --seed 42 --encoder cort --split dev --output audit.json
       python -m cort.audit ivfpq --model rerankers/late/best --queries queries.dev.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --qrels qrels.parquet --index ivfpq --widths 8 16 32 --candidates 1024
           --depths 10 100 1000 --measures RR@10 --sample 500 --seed 42 --encoder late --split dev --output audit.json
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "graph": "cort.retrieval.audit_graph",
    "ivfpq": "cort.retrieval.audit_ivfpq",
}
main = main_of_commands("cort.audit", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
