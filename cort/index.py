"""Index the passages by their terms (BM25, SPLADE), their vectors (HNSW, ONNG, IVF-PQ) or their token vectors (IVF-PQ).

Equal inputs give equal bytes for any number of shards and threads. The exception is Lucene, whose segments depend on
how threads were scheduled; rankings do not, because BM25 uses the statistics of the whole collection.

Usage: python -m cort.index bm25 --passages passages.parquet --output lucene --threads 2 --memory-mb 2000
       python -m cort.index impacts --passages 1-of-2.parquet 2-of-2.parquet --output impacts --threads 2
       python -m cort.index hnsw --passages 1-of-2.arrow 2-of-2.arrow --M 16 --ef-construction 200 --threads 4
           --output hnsw
       python -m cort.index onng --passages 1-of-2.arrow 2-of-2.arrow --edges 100 --outgoing 10 --incoming 120
           --threads 4 --output onng
       python -m cort.index ivfpq --passages 1-of-2.arrow 2-of-2.arrow --bytes 16 --seed 42 --threads 8 --output ivfpq
"""

import sys

from cort.runtime.commands import main_of_commands

COMMANDS = {
    "bm25": "cort.retrieval.index_bm25",
    "impacts": "cort.retrieval.index_impacts",
    "hnsw": "cort.retrieval.index_hnsw",
    "onng": "cort.retrieval.index_onng",
    "ivfpq": "cort.retrieval.index_ivfpq",
}
main = main_of_commands("cort.index", __doc__, COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
