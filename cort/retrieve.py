"""Retrieve passages for every query: by terms (BM25, SPLADE), or by vectors of texts or tokens (ColBERT).

Results do not depend on shards or threads, nor exact results on the device. Passages are ordered by (-score, doc_id).
The width of an approximate search determines how many of the exact results it finds and how long it takes. With --audit
it is the smallest width that reaches the --recall of exact retrieval at the largest depth of the audit.

Usage: python -m cort.retrieve bm25 --index lucene --queries queries.dev.parquet --k1 0.9 --b 0.4 --depth 1000
           --threads 2 --memory-mb 2000 --tag bm25 --output bm25.trec
       python -m cort.retrieve impacts --index impacts --queries queries.dev.parquet --depth 1000 --threads 2
           --memory-mb 2000 --tag splade --output splade.trec
       python -m cort.retrieve exact --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --depth 1000
           --threads 4 --tag NAME --output run.trec
       python -m cort.retrieve graph --kind onng --index onng --width 0.1 --queries queries.arrow --depth 1000
           --threads 4 --tag NAME --output run.trec
       python -m cort.retrieve tokens --model rerankers/late/best --queries queries.test.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --depth 1000 --threads 4 --tag NAME --output run.trec
       python -m cort.retrieve ivfpq --model rerankers/late/best --queries queries.test.arrow
           --passages 1-of-2.arrow 2-of-2.arrow --index ivfpq --width 32 --candidates 1024 --depth 1000 --threads 4
           --tag NAME --output run.trec
       python -m cort.retrieve ivfpq --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --index ivfpq
           --width 32 --candidates 1024 --depth 1000 --threads 4 --tag NAME --output run.trec
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "bm25": "cort.retrieval.retrieve_bm25",
    "impacts": "cort.retrieval.retrieve_impacts",
    "exact": "cort.retrieval.retrieve_exact",
    "graph": "cort.retrieval.retrieve_graph",
    "tokens": "cort.retrieval.retrieve_tokens",
    "ivfpq": "cort.retrieval.retrieve_ivfpq",
}
main = main_of_commands("cort.retrieve", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
