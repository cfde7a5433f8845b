"""Where results lie. Rules and what they ask take every path under `results/` from here.

Names in braces are wildcards of the rules.
"""

from __future__ import annotations

ROOT = "results"
#: What was fetched is kept here for all experiments, whole or in part; no dataset has such a name.
KEPT = "results/.downloads"
DATASET = "results/{dataset}"
#: State of unfinished work, from which a retry goes on. No output: Snakemake deletes those of a job that ended early.
CHECKPOINTS = "results/{dataset}/checkpoints"
#: Scores of pairs, from which later jobs go on when candidates change.
KNOWN_SCORES = "results/{dataset}/checkpoints/known_scores/{reranker}/"

# Raw files, and the tables made of them.
RAW_COLLECTION = "results/{dataset}/raw/collection.tsv"
RAW_SPLIT = "results/{dataset}/raw/{table}.{split}.tsv"
RAW_FILTERS = "results/{dataset}/raw/filters.json"
# Of a collection or split in ir_datasets, on Hugging Face or in a folder: what was left out, and the files it is from.
IMPORT_COUNTS = "results/{dataset}/raw/imported.json"
IMPORT_SOURCES = "results/{dataset}/raw/sources.json"
IMPORTED_QUERIES = "results/{dataset}/raw/imported/queries.{split}.jsonl"
IMPORTED_QRELS = "results/{dataset}/raw/imported/qrels.{split}.tsv"
SPLIT_SOURCES = "results/{dataset}/raw/imported/sources.{split}.json"
#: Answers of endpoints, for all experiments.
ANSWERS = "endpoint_cache/answers.sqlite"
EMBEDDINGS = "endpoint_cache/vectors.sqlite"
SERVED_SCORES = "endpoint_cache/scores.sqlite"
# Of generated queries: all, with the passages below them, and how many of a split are dropped. Of judged ones: grades.
CANDIDATES = "results/{dataset}/raw/candidates.parquet"
GENERATED_COUNTS = "results/{dataset}/raw/imported/counts.{split}.json"
PUBLIC_FILE = "results/{dataset}/raw/{source}/{file}"
PASSAGES = "results/{dataset}/collection/passages.parquet"
QUERIES = "results/{dataset}/collection/queries.{split}.parquet"
QRELS = "results/{dataset}/collection/qrels.{split}.parquet"
# What is odd about a split, in numbers and by ids.
JUDGEMENT_COUNTS = "results/{dataset}/collection/judgements.{split}.json"
ODDITIES = "results/{dataset}/collection/oddities.{split}.csv"
# What is odd about the collection and all splits, in sentences and by ids.
INSPECTION = "results/{dataset}/collection/inspection.json"
INSPECTED_IDS = "results/{dataset}/collection/inspection.csv"
TEXTS = "results/{dataset}/collection/{text}.parquet"
TOKENS = "results/{dataset}/tokens/{base_model}/{text}.arrow"
LENGTHS = "results/{dataset}/tokens/{base_model}/{text}.lengths.json"

# Term-based rankers, and what changes their texts.
EXPANSIONS = "results/{dataset}/expansions/{expander}.parquet"
# Of a model's queries, a shard.
EXPANSION_SHARD = "results/{dataset}/expansions/{expander}/passages.{shard}.parquet"
# A shard.
TERM_WEIGHTS_SHARD = "results/{dataset}/term_weights/{weigher}/passages.{shard}.parquet"
LEXICAL_INDEX = "results/{dataset}/lexical/{lexical}/index/manifest.json"
LEXICAL_PARAMETERS = "results/{dataset}/lexical/{lexical}/parameters.json"
# Tuned by folds of the queries of a split.
LEXICAL_FOLDS = "results/{dataset}/lexical/{lexical}/parameters/{split}.json"

# Models, and what they are trained on. A folder ends with a slash, for its files.
BASE_MODEL = "results/{dataset}/base_models/{base_model}/"
# Of a released encoder or re-ranker, which is a base model by section and name.
RELEASED_ENCODER = "results/{dataset}/base_models/encoder.{encoder}/"
RELEASED_RERANKER = "results/{dataset}/base_models/reranker.{reranker}/"
RELEASED_WEIGHER = "results/{dataset}/base_models/weigher.{weigher}/"
RELEASED_EXPANDER = "results/{dataset}/base_models/expander.{expander}/"
ENCODER = "results/{dataset}/encoders/{encoder}/"
RERANKER = "results/{dataset}/rerankers/{reranker}/"
MODEL = "results/{dataset}/{section}/{model}/{checkpoint}"
#: The file that stands for the folder of an encoder or re-ranker, whose other files depend on the model.
CARD = "README.md"
CURVE = "results/{dataset}/{section}/{model}/curve.csv"
SELECTION = "results/{dataset}/{section}/{model}/selection.json"
TRIPLES = "results/{dataset}/triples/{encoder}.{split}.parquet"
TRIPLE_COUNTS = "results/{dataset}/triples/{encoder}.{split}.json"
# What a model draws from a run that is deeper than those of training.
NEGATIVES = "results/{dataset}/negatives/{model}.{split}/{system}.trec"
PAIRS = "results/{dataset}/pairs/{reranker}.{split}.parquet"
PAIR_COUNTS = "results/{dataset}/pairs/{reranker}.{split}.json"
EXAMPLE_COUNTS = "results/{dataset}/{source}/{model}.{split}.json"

# Vectors, indexes, scores, runs.
VECTORS = "results/{dataset}/embeddings/{encoder}/passages.{shard}.arrow"
QUERY_VECTORS = "results/{dataset}/embeddings/{encoder}/queries.{split}.arrow"
LATE_VECTORS = "results/{dataset}/token_embeddings/{reranker}/passages.{shard}.arrow"
# Of a sparse encoder: weights of tokens, and Lucene's index of them.
IMPACTS = "results/{dataset}/embeddings/{encoder}/passages.{shard}.parquet"
QUERY_IMPACTS = "results/{dataset}/embeddings/{encoder}/queries.{split}.parquet"
IMPACT_INDEX = "results/{dataset}/impacts/{encoder}/manifest.json"
GRAPH = "results/{dataset}/{index}/{encoder}/"
AUDIT = "results/{dataset}/audit/{split}/{encoder}.{index}.json"
SCORES = "results/{dataset}/scores/{reranker}/{split}.parquet"
TRIPLE_SCORES = "results/{dataset}/scores/{reranker}/triples/{encoder}.{split}.parquet"
WEIGHTS = "results/{dataset}/weights/{system}.json"
# Tuned by folds of the queries of a split.
FOLD_WEIGHTS = "results/{dataset}/weights/{split}/{system}.json"
RUN = "results/{dataset}/runs/{split}/{system}.trec"
DOCUMENT_RUN = "results/{dataset}/documents/{split}/{system}.trec"

# What is measured and shown.
MEASURES = "results/{dataset}/measures/{split}/{system}.json"
PER_QUERY = "results/{dataset}/measures/{split}/{system}.parquet"
RECALL = "results/{dataset}/recall/{split}/{system}.csv"
DEPTHS = "results/{dataset}/depths/{split}/{system}.json"
OVERLAP = "results/{dataset}/overlap/{split}.json"
AGREEMENT = "results/{dataset}/agreement/{split}/{other}.json"
COMPARISON = "results/{dataset}/comparisons/{split}"
CONSISTENCY = "results/{dataset}/consistency/{split}/{system}.json"
PROVENANCE = "results/{dataset}/provenance.json"
EXPERIMENT = "results/{dataset}/experiment.yaml"
LATENCY = "results/{dataset}/latency/{split}.json"
REPORT = "results/{dataset}/report/"
EXPLORER = "results/{dataset}/report/explore/{split}/index.html"
REPRODUCTION = "results/{dataset}/report/reproduction/"
SUBMISSION = "results/{dataset}/submissions/{submission}.{suffix}"
DEPLOYMENT = "results/{dataset}/deploy/{deployment}/"


def within(folder: object, path: str, **names: str) -> str:
    """Path of a file of a dataset whose results are in a folder of their own."""
    return f"{folder}/{path.removeprefix(DATASET + '/').format(**names)}"
