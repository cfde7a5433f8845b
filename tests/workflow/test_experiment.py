"""What the config checks find, and what the rules learn from a config."""

import re
from types import SimpleNamespace

import pytest
import yaml
from snakemake.iocontainers import Wildcards

from cort.experiment.checks import ConfigError, complete, read
from cort.experiment.config import kind_of, names_of_kind, splits_of
from cort.experiment.description import describe
from cort.experiment.models import (
    encoders_pattern,
    indexes_of,
    is_trained,
    named_models,
    place_of_base_model,
    reranked_by,
    systems_with,
    teachers,
    trained_models,
    trainings,
    used_models,
)
from cort.experiment.paths import CURVE, MEASURES
from cort.experiment.splits import splits_apart
from cort.settings.config import deciding, evaluated_splits
from cort.settings.experiment import Experiment
from cort.settings.fields import schema_of
from tests.support.common import COMMIT
from tests.support.configs import GONE, changed, complaints
from workflow import settings
from workflow.inputs import audit_of, excluded_queries, judgements, weights
from workflow.report_inputs import comparisons, explorers, exports, of_systems, of_trainings, overlaps

# As messages list them.
SYSTEMS = ", ".join(changed({})["systems"])
CROSS = "reranker: cross"
LINEAR = {"systems": ["bm25", "cort"], "method": "linear"}
TRAINING_FILES = {kind: f"data/{kind}.train.tsv" for kind in ("queries", "qrels")}
# A re-ranker that can retrieve.
LATE = {
    "rerankers late": {"base_model": "small", "kind": "late_interaction", "depth": 20, "max_length": 60},
    "rerankers late pairs": {"first_rank": 1, "last_rank": 20, "minimum_results": 5},
}
MISTAKES = {
    # The shape.
    "unknown key": (
        {"datset": "x"},
        "top level: found the unknown key datset, expected one of dataset, extends, title, seed, protect, downloads, "
        "collection, splits, depth, training_depth, lexical, expanders, weighers, base_models, encoders, rerankers, "
        "systems, evaluation, audit, latency, papers, exports, submissions; "
        "did you mean dataset?",
    ),
    "unknown key of a system": (
        {"systems bm25": {"retreive": "bm25"}},
        "systems.bm25: found the unknown key retreive, expected one of retrieve, bm25, onng, hnsw, ivfpq, interleave, "
        "fuse, rerank, reranker, depth, weight, tune, run; did you mean retrieve?",
    ),
    "unknown key like nothing": (
        {"lexical bm25 xyz": 1},
        "lexical.bm25: found the unknown key xyz, expected one of expand, weigh, cleaning, k1, b, tune; remove it",
    ),
    "missing key": ({"dataset": GONE}, "top level: found no key dataset, expected it to be set; add it"),
    "missing key of an encoder": (
        {"encoders encoder base_model": GONE},
        "encoders.encoder: found no key base_model, expected it or pretrained to be set; add one",
    ),
    "late interaction as released": (
        {"rerankers ready": {"pretrained": "model", "kind": "late_interaction"}},
        "rerankers.ready.kind: found late_interaction with pretrained, expected a cross-encoder; remove kind",
    ),
    "a base model and a released one": (
        {"encoders ready": {"pretrained": "model", "base_model": "small"}},
        "encoders.ready: found pretrained and base_model, expected one of them; remove one",
    ),
    "the size of a released model": (
        {"encoders ready": {"pretrained": "model", "dimension": 16}},
        "encoders.ready.dimension: found dimension with pretrained, expected none, as the model's own files say it; "
        "remove it",
    ),
    "a branch of a released model": (
        {"encoders ready": {"pretrained": "intfloat/e5-small-v2", "revision": "main"}},
        "encoders.ready.revision: found 'main', expected a commit, 40 hexadecimal digits; name it, as a branch moves",
    ),
    "a prompt in two ways": (
        {"encoders ready": {"pretrained": "model", "query_prompt": "query: ", "query_prompt_name": "query"}},
        "encoders.ready: found query_prompt and query_prompt_name, expected one of them; remove one",
    ),
    "a prompt of a model that is trained here": (
        {"encoders encoder query_prompt": "query: "},
        "encoders.encoder.query_prompt: found query_prompt without pretrained, expected both or none; remove it",
    ),
    "examples of a released model that is not trained": (
        {"rerankers ready": {"pretrained": "model", "pairs": {"negatives": 2}}},
        "rerankers.ready.pairs: found pairs without training, expected both or none; add `training: {}` or remove it",
    ),
    "a released model with the name of a base model": (
        {"encoders ready": {"pretrained": "model"}, "base_models encoder.ready": {"pretrained": "model"}},
        "encoders.ready: found pretrained and the base model encoder.ready, whose name it needs, expected no such base "
        "model; rename that one",
    ),
    "a released weigher with the name of a base model": (
        {"weighers deepct": {"pretrained": "model"}, "base_models weigher.deepct": {"pretrained": "model"}},
        "weighers.deepct: found pretrained and the base model weigher.deepct, whose name it needs, expected no such "
        "base model; rename that one",
    ),
    "the base model of a released one": (
        {"encoders ready": {"pretrained": "model"}, "encoders encoder base_model": "ready"},
        "encoders.encoder.base_model: found 'ready', expected one of small; add it or fix the name",
    ),
    "another start of a released one": (
        {
            "encoders first": {"pretrained": "model", "training": {}},
            "encoders second": {"pretrained": "other", "training": {}, "start": "first"},
            "training_depth": 100,
        },
        "encoders.second.start: found 'first' with pretrained model, expected other as here; name another encoder or "
        "change it",
    ),
    "text for a number": (
        {"encoders encoder margin": "wide"},
        "encoders.encoder.margin: found 'wide', expected a number; fix the value",
    ),
    "YAML's text 2e-5": (
        {"encoders encoder training learning_rate": "2e-5"},
        "encoders.encoder.training.learning_rate: found '2e-5', expected a number; write 2.0e-05, without quotes",
    ),
    "quoted number": ({"seed": "42"}, "seed: found '42', expected a whole number; write 42, without quotes"),
    "6.0 for 6": ({"depth": 50.0}, "depth: found 50.0, expected a whole number; write 50"),
    "truth for a number": ({"seed": True}, "seed: found True, expected a whole number; fix the value"),
    "not a number": (
        {"encoders encoder margin": float("nan")},
        "encoders.encoder.margin: found nan, expected a number; fix the value",
    ),
    "number for text": (
        {"base_models small": {"pretrained": "x/y", "revision": 1234567}},
        "base_models.small.revision: found 1234567, expected text; put it in quotes",
    ),
    "branch for a commit": (
        {"base_models small": {"pretrained": "x/y", "revision": "main"}},
        "base_models.small.revision: found 'main', expected a commit, 40 hexadecimal digits; "
        "name it, as a branch moves",
    ),
    "pull request without its commit": (
        {"base_models small": {"pretrained": "x/y", "revision": "refs/pr/2"}},
        "base_models.small.revision: found 'refs/pr/2', expected a commit, 40 hexadecimal digits; "
        "name it, as a branch moves",
    ),
    "empty section": ({"lexical": None}, "lexical: found nothing, expected a mapping; write {} or remove the key"),
    "text for a list": (
        {"systems cort+bm25 interleave": "cort"},
        "systems.cort+bm25.interleave: found 'cort', expected a list; fix the value",
    ),
    "wrong choice": (
        {"encoders encoder pooling": "max"},
        "encoders.encoder.pooling: found 'max', expected one of cls, mean, last; choose one",
    ),
    "too small": ({"training_depth": 0}, "training_depth: found 0, expected at least 1; fix the value"),
    "too large": ({"lexical bm25": {"b": 1.5}}, "lexical.bm25.b: found 1.5, expected at most 1; fix the value"),
    "not positive": (
        {"rerankers cross training learning_rate": 0},
        "rerankers.cross.training.learning_rate: found 0, expected more than 0; fix the value",
    ),
    "short list": (
        {"systems cort+bm25 interleave": ["cort"]},
        "systems.cort+bm25.interleave: found ['cort'], expected at least 2 of them; fix the value",
    ),
    "no system": ({"systems": {}}, "systems: found {}, expected at least 1 in it; fix the value"),
    "name with a slash": (
        {"systems a/b": {"retrieve": "bm25"}},
        "systems.a/b: found the name 'a/b', expected letters, digits and + _ . -, a letter or digit first; rename it",
    ),
    "data set with a newline": (
        {"dataset": "tiny\n"},
        "dataset: found the name 'tiny\\n', expected letters, digits and _ . -, a letter or digit first; rename it",
    ),
    "empty text": (
        {"collection passages": ""},
        "collection.passages: found '', expected text; give a value or remove the key",
    ),
    "blanks in a list": ({"papers": [" "]}, "papers.0: found ' ', expected text; give a value or remove the key"),
    "too large an architecture": (
        {"base_models small architecture hidden_size": 10**9},
        "base_models.small.architecture.hidden_size: found 1000000000, expected at most 1000000; fix the value",
    ),
    "data set with a blank": (
        {"dataset": "my data"},
        "dataset: found the name 'my data', expected letters, digits and _ . -, a letter or digit first; rename it",
    ),
    # The collection and its splits.
    "no collection": (
        {"collection": {}},
        "collection: found nothing, expected exactly one of passages and pydocs; keep one",
    ),
    "two collections": (
        {"collection pydocs": {}},
        "collection: found passages, pydocs, expected exactly one of passages and pydocs; keep one",
    ),
    "nothing to evaluate": (
        {"splits test": GONE},
        "splits: found only train, validation, expected a split to evaluate besides train and validation; add one",
    ),
    "training queries without judgements": (
        {"splits train": {"queries": "q.tsv"}},
        "splits.train: found queries, expected queries and qrels, or hold_out alone; fix the split",
    ),
    "no files": (
        {"splits test": {}},
        "splits.test: found nothing, expected queries and qrels, queries alone (ranked, not measured), or hold_out "
        "alone; fix the split",
    ),
    "a sample of no files": (
        {"splits validation": {"hold_out": 5, "sample": 3}},
        "splits.validation.sample: found sample, expected it with files of queries; remove it",
    ),
    "without an unknown split": (
        {"splits test without": "tset"},
        "splits.test.without: found 'tset', expected one of train, validation, test; did you mean test?",
    ),
    "without itself": (
        {"splits test without": "test"},
        "splits.test.without: found 'test', expected another split made of whole files; name one",
    ),
    "test queries that BM25 is tuned on": (
        {"splits test qrels": "data/./qrels.train.tsv"},
        "splits.test.qrels: found data/./qrels.train.tsv, which splits.train has, too, expected other judgements than "
        "those that systems learn from; name other files, or add test to splits.train.without",
    ),
    "validation queries that are trained on": (
        {"splits validation": {"queries": "q.tsv", "qrels": ["r.tsv", "data/qrels.train.tsv"], "sample": 9}},
        "splits.validation.qrels: found data/qrels.train.tsv, which splits.train has, too, expected other judgements "
        "than those that systems learn from; name other files, or add validation to splits.train.without",
    ),
    "without a held-out split": (
        {"splits test without": "validation"},
        "splits.test.without: found 'validation', expected another split made of whole files; name one",
    ),
    "hold_out beside files": (
        {"splits test hold_out": 5, "splits validation": {"queries": "q.tsv", "qrels": "r.tsv"}},
        "splits.test: found hold_out, qrels, queries, expected queries and qrels, queries alone (ranked, not "
        "measured), or hold_out alone; fix the split",
    ),
    "bm25 parameters of an encoder": (
        {"systems cort bm25": {"k1": 1.0, "b": 0.5}},
        "systems.cort.bm25: found bm25 with an encoder, expected it with an index under lexical; remove it",
    ),
    "a graph of inner products": (
        {"encoders encoder similarity": "inner_product", "systems cort-hnsw": GONE},
        "systems.cort-onng.onng: found an encoder of inner products, expected one of angles; remove onng",
    ),
    "bm25 parameters of an interleaving": (
        {"systems cort+bm25 bm25": {"k1": 1.0, "b": 0.5}},
        "systems.cort+bm25.bm25: found bm25 with interleave, expected it not to be there; remove it",
    ),
    "hold_out twice": (
        {"splits test": {"hold_out": 5}},
        "splits: found hold_out in validation, test, expected it in one split; name files for the others",
    ),
    "hold_out of train": (
        {"splits train": {"hold_out": 5}, "splits validation": {"queries": "q.tsv", "qrels": "r.tsv"}},
        "splits.train: found hold_out, expected a split train beside it to draw from; name files",
    ),
    # Models.
    "base model of two kinds": (
        {"base_models small pretrained": "folder"},
        "base_models.small: found architecture, pretrained, expected exactly one of pretrained and architecture; "
        "keep one",
    ),
    "training of a released encoder": (
        {"encoders encoder": {"base_model": "small", "released": "a.ckpt", "loss": "triplet"}},
        "encoders.encoder.loss: found loss with released, expected none, as nothing is trained; remove it",
    ),
    "a setting of another kind of re-ranker": (
        {"rerankers cross term_weights": True},
        "rerankers.cross.term_weights: found term_weights, expected it with `kind: late_interaction` alone; remove it",
    ),
    "n-grams without a convolution": (
        {"rerankers cross kind": "knrm", "rerankers cross filters": 8, "exports": []},
        "rerankers.cross.filters: found filters, expected it with `kind: conv_knrm` alone; remove it",
    ),
    "a dimension that the base model has": (
        {
            "rerankers cross kind": "knrm",
            "rerankers cross dimension": 8,
            "rerankers cross word_vectors": "base_model",
            "exports": [],
        },
        "rerankers.cross.dimension: found dimension with the word vectors of the base model, expected it with "
        "`word_vectors: new`; remove it",
    ),
    "a weight without its loss": (
        {"rerankers cross loss": "softmax", "rerankers cross pos_weight": 7},
        "rerankers.cross.pos_weight: found pos_weight with the loss softmax, expected it with pointwise; remove it",
    ),
    "more random negatives than negatives": (
        {"rerankers cross pairs": {"negatives": 2, "random": 3, "last_rank": 20}},
        "rerankers.cross.pairs.random: found 3, expected at most the 2 negatives; lower it or raise negatives",
    ),
    "export of late interaction": (
        {"rerankers cross kind": "late_interaction", "exports": ["cross"]},
        "exports: found 'cross', a late_interaction, expected a cross-encoder or an encoder, as sentence-transformers' "
        "layout is written of these; remove it",
    ),
    "unknown export": (
        {"exports": ["encodr"]},
        "exports: found 'encodr', expected one of encoder, cross; did you mean encoder?",
    ),
    "export twice": (
        {"exports": ["cross", "cross"]},
        "exports: found cross 2 times, expected each model once; remove one",
    ),
    "export of an unused model": (
        {"encoders other": {"base_model": "small", "triples": {"last_rank": 20}}, "exports": ["other"]},
        "exports: found 'other', which no system uses, expected a model that is evaluated; add a system",
    ),
    "revision from scratch": (
        {"base_models small revision": COMMIT},
        "base_models.small: found revision, expected it with pretrained alone; remove it",
    ),
    "unknown base model": (
        {"encoders encoder base_model": "smal"},
        "encoders.encoder.base_model: found 'smal', expected one of small; did you mean small?",
    ),
    "unknown teacher": (
        {"rerankers cross pairs system": "tf-idf"},
        "rerankers.cross.pairs.system: found 'tf-idf', expected one of " + SYSTEMS + "; add it or fix the name",
    ),
    "ranks above training_depth": (
        {"encoders encoder triples last_rank": 31},
        "encoders.encoder.triples: found the ranks 2 to 31, expected them in order and within training_depth (30); "
        "fix the ranks or raise training_depth",
    ),
    "ranks out of order": (
        {"rerankers cross pairs first_rank": 21},
        "rerankers.cross.pairs: found the ranks 21 to 20, expected them in order and within training_depth (30); "
        "fix the ranks or raise training_depth",
    ),
    "no query left": (
        {"encoders encoder triples minimum_results": 31},
        "encoders.encoder.triples.minimum_results: found 31, expected at most training_depth (30), or no query is "
        "left; lower it or raise training_depth",
    ),
    "a file of triples of another kind": (
        {"encoders encoder triples file": "triples.jsonl"},
        "encoders.encoder.triples.file: found 'triples.jsonl', expected a name that ends in .tsv.gz, .tsv, .txt.gz, "
        ".txt; rename or convert the file",
    ),
    "a file of triples that is an archive": (
        {"rerankers cross pairs file": "download:msmarco/triples.train.small.tar.gz"},
        "rerankers.cross.pairs.file: found the archive msmarco/triples.train.small.tar.gz, expected a file in it; name "
        "one of msmarco/triples.train.small.tsv",
    ),
    "a sample of no file": (
        {"encoders encoder triples sample": 5},
        "encoders.encoder.triples.sample: found sample without file, expected both or none; name a file of triples or "
        "remove it",
    ),
    "a filter by nobody": (
        {"expanders doc2query filter": {"reranker": "judge"}},
        "expanders.doc2query.filter.reranker: found 'judge', expected one of cross; add it or fix the name",
    ),
    "a filter that keeps nothing": (
        {"expanders doc2query filter": {"reranker": "cross", "keep": 0}},
        "expanders.doc2query.filter.keep: found 0, expected more than 0; fix the value",
    ),
    "a filter without a re-ranker": (
        {"expanders doc2query filter": {"keep": 0.3}},
        "expanders.doc2query.filter: found no key reranker, expected it to be set; add it",
    ),
    "published teacher": (
        {"encoders encoder triples system": "published"},
        "encoders.encoder.triples.system: found 'published', made from a published run, expected a system that can "
        "rank the training queries; name another",
    ),
    "a head of late interaction": (
        {"rerankers cross kind": "late_interaction", "rerankers cross head": "linear", "exports": ["encoder"]},
        "rerankers.cross.head: found head, expected it with `kind: cross_encoder` alone; remove it",
    ),
    "a head of a released model": (
        {"rerankers ready": {"pretrained": "model", "head": "linear"}},
        "rerankers.ready.head: found head with pretrained, expected none, as the model's own files say it; remove it",
    ),
    "an export of one of two models of a name": (
        {"rerankers encoder": {"base_model": "small", "pairs": {"last_rank": 20}}},
        "exports: found 'encoder', expected one of encoders.encoder, cross, rerankers.encoder; did you mean "
        "encoders.encoder?",
    ),
    "encoder bm25": (
        {"encoders bm25": {"base_model": "small", "triples": {"last_rank": 20}}},
        "encoders.bm25: found the name bm25, expected another, as `retrieve: bm25` means the index "
        "lexical.bm25; rename it",
    ),
    # Systems.
    "two kinds": (
        {"systems cort": {"retrieve": "encoder", "rerank": "bm25"}},
        "systems.cort: found retrieve, rerank, expected exactly one of retrieve, interleave, fuse, rerank, run; keep "
        "one",
    ),
    "no kind": (
        {"systems new": {"depth": 5}},
        "systems.new: found nothing, expected exactly one of retrieve, interleave, fuse, rerank, run; keep one",
    ),
    "foreign key": (
        {"systems cort+bm25 depth": 5},
        "systems.cort+bm25.depth: found depth with interleave, expected it not to be there; remove it",
    ),
    "onng with bm25": (
        {"systems bm25 onng": {}},
        "systems.bm25.onng: found onng with bm25, expected it with an encoder; name an encoder or remove it",
    ),
    "hnsw with bm25": (
        {"systems bm25 hnsw": {}},
        "systems.bm25.hnsw: found hnsw with bm25, expected it with an encoder; name an encoder or remove it",
    ),
    "a re-ranker that cannot retrieve": (
        {"systems cort retrieve": "cross"},
        "systems.cort.retrieve: found 'cross', a cross_encoder, expected a re-ranker of the kind late_interaction, "
        "which alone retrieves; name an encoder or change the kind",
    ),
    "onng with late interaction": (
        {**LATE, "systems late": {"retrieve": "late", "onng": {}}},
        "systems.late.onng: found onng with late interaction, expected it with an encoder; remove it",
    ),
    "bm25 with late interaction": (
        {**LATE, "systems late": {"retrieve": "late", "bm25": {"k1": 1, "b": 0.5}}},
        "systems.late.bm25: found bm25 with late interaction, expected it with an index under lexical; remove it",
    ),
    "ivfpq with an encoder": (
        {"systems cort ivfpq": {}},
        "systems.cort.ivfpq: found ivfpq with an encoder, expected it with a re-ranker of the kind late_interaction; "
        "remove it",
    ),
    "ivfpq with bm25": (
        {"systems bm25 ivfpq": {}},
        "systems.bm25.ivfpq: found ivfpq with bm25, expected it with a re-ranker; name a re-ranker or remove it",
    ),
    "a cross-encoder's ivfpq": (
        {"rerankers cross ivfpq": {"lists": 5}},
        "rerankers.cross.ivfpq: found ivfpq, expected it with `kind: late_interaction` alone; remove it",
    ),
    "bytes that do not divide the dimension": (
        {**LATE, "systems late": {"retrieve": "late", "ivfpq": {}}, "rerankers late ivfpq": {"bytes": 5}},
        "rerankers.late.ivfpq.bytes: found 5, expected a divisor of the dimension, 64; set bytes, or change the "
        "dimension",
    ),
    "a sample with fewer vectors than lists": (
        {
            **LATE,
            "systems late": {"retrieve": "late", "ivfpq": {}},
            "rerankers late ivfpq": {"lists": 500, "sample": 300},
        },
        "rerankers.late.ivfpq.sample: found 300, expected 500 (lists) or more; raise it or lower lists",
    ),
    "probes that were audited with other candidates": (
        {**LATE, "systems late": {"retrieve": "late", "ivfpq": {"probes": "auto", "candidates": 5}}},
        "systems.late.ivfpq.candidates: found 5 with probes auto, expected 1024 as in audit.candidates; make them the "
        "same",
    ),
    "recall without probes to choose": (
        {**LATE, "systems late": {"retrieve": "late", "ivfpq": {"recall": 0.9}}},
        "systems.late.ivfpq.recall: found recall without `probes: auto`, expected both or none; add it or remove "
        "recall",
    ),
    "an unknown late interaction": (
        {**LATE, "systems late": {"retrieve": "lat"}},
        "systems.late.retrieve: found 'lat', expected one of bm25, expanded, weighed, encoder, late; did you mean "
        "late?",
    ),
    "late interaction that learns from itself": (
        {**LATE, "systems late": {"retrieve": "late"}, "rerankers late pairs system": "late"},
        "systems.late: found the circle late -> late, expected no system to wait for itself; break it, or give a "
        "re-ranker of several of them a copy under another name",
    ),
    "two indexes": (
        {"systems cort-onng hnsw": {}},
        "systems.cort-onng: found onng, hnsw, expected one of them; make two systems",
    ),
    "an ef that is too small": (
        {"systems cort-hnsw hnsw": {"ef": 49}},
        "systems.cort-hnsw.hnsw.ef: found 49, expected 50 (depth) or more; raise it or lower depth",
    ),
    "an ef that is too small for training queries": (
        {
            "systems cort-hnsw hnsw": {"ef": 50},
            "training_depth": 60,
            "rerankers cross pairs system": "cort-hnsw",
        },
        "systems.cort-hnsw.hnsw.ef: found 50, expected 60 (training_depth) or more; raise it or lower training_depth",
    ),
    "no ef for the depth": (
        {"audit efs": [10, 20]},
        "audit.efs: found 20 at most, expected one of 50 (depth) or more; add it",
    ),
    "audited values in disorder": (
        {"audit epsilons": [0.2, 0.1]},
        "audit.epsilons: found [0.2, 0.1], expected growing numbers; sort them",
    ),
    "a width that is another text": (
        {"systems cort-onng onng": {"epsilon": "outo"}},
        "systems.cort-onng.onng.epsilon: found 'outo', expected a number or auto; fix the value",
    ),
    "a recall that nothing is chosen by": (
        {"systems cort-onng onng": {"epsilon": 0.1, "recall": 0.9}},
        "systems.cort-onng.onng.recall: found recall without `epsilon: auto`, expected both or none; add it or remove "
        "recall",
    ),
    "unknown encoder": (
        {"systems cort retrieve": "encodr"},
        "systems.cort.retrieve: found 'encodr', expected one of bm25, expanded, weighed, encoder; did you mean "
        "encoder?",
    ),
    "unknown part": (
        {"systems cort+bm25 interleave": ["cort", "bm52"]},
        "systems.cort+bm25.interleave: found 'bm52', expected one of " + SYSTEMS + "; did you mean bm25?",
    ),
    "unknown fusion": (
        {"systems new": {"fuse": {"systems": ["bm25", "cort"], "method": "rff"}}},
        "systems.new.fuse.method: found 'rff', expected one of interleave, rrf, linear; did you mean rrf?",
    ),
    "unknown fused system": (
        {"systems new": {"fuse": {"systems": ["bm25", "cotr"], "method": "rrf"}}},
        "systems.new.fuse.systems: found 'cotr', expected one of " + SYSTEMS + ", new; did you mean cort?",
    ),
    "a constant of another method": (
        {"systems new": {"fuse": {"systems": ["bm25", "cort"], "method": "linear", "k": 10}}},
        "systems.new.fuse.k: found k with the method linear, expected it with rrf; remove it or change the method",
    ),
    "weights of another method": (
        {"systems new": {"fuse": {"systems": ["bm25", "cort"], "method": "rrf", "weights": [1, 2]}}},
        "systems.new.fuse.weights: found weights with the method rrf, expected it with linear; remove it or change the "
        "method",
    ),
    "unknown normalization": (
        {"systems new": {"fuse": {"systems": ["bm25", "cort"], "method": "linear", "normalization": "minmax"}}},
        "systems.new.fuse.normalization: found 'minmax', expected one of min-max, z-score; did you mean min-max?",
    ),
    "too many weights": (
        {"systems new": {"fuse": {"systems": ["bm25", "cort"], "method": "linear", "weights": [0.2, 0.3, 0.5]}}},
        "systems.new.fuse.weights: found 3 weights, expected 2, one per system; add or remove some",
    ),
    "no weight at all": (
        {"systems new": {"fuse": {"systems": ["bm25", "cort"], "method": "linear", "weights": [0, 0]}}},
        "systems.new.fuse.weights: found 0 alone, expected one above 0; raise one",
    ),
    "weights and their tuning": (
        {"systems new": {"fuse": {**LINEAR, "weights": [0.2, 0.8], "tune": "RR@10"}}},
        "systems.new.fuse.weights: found weights beside tune, expected one of them, as tune chooses the weights; "
        "remove one",
    ),
    "tuned for nothing known": (
        {"systems new": {"fuse": {**LINEAR, "tune": "MRR"}}},
        "systems.new.fuse.tune: found 'MRR', expected one of RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, "
        "Success@k or Judged@k with k from 1; fix it",
    ),
    "tuned on a published run": (
        {"systems new": {"fuse": {"systems": ["bm25", "published"], "method": "linear", "tune": "RR@10"}}},
        "systems.new: found tune with 'published', made from a published run, expected systems that can rank the "
        "validation queries; give weights or name another",
    ),
    "tuned on shorter runs": (
        {"systems new": {"fuse": {**LINEAR, "tune": "RR@10"}}, "training_depth": 60},
        "systems.new.fuse.tune: found training_depth 60, expected at most depth (50), which runs of validation have "
        "with it; lower training_depth or raise depth",
    ),
    "a weight of what re-ranks nothing": (
        {"systems bm25 weight": 0.5},
        "systems.bm25.weight: found weight with retrieve, expected it not to be there; remove it",
    ),
    "a weight and its tuning": (
        {"systems cort+bm25-cross weight": 0.5, "systems cort+bm25-cross tune": "RR@10"},
        "systems.cort+bm25-cross.weight: found weight beside tune, expected one of them, as tune chooses the weight; "
        "remove one",
    ),
    "a weight above 1": (
        {"systems cort+bm25-cross weight": 1.5},
        "systems.cort+bm25-cross.weight: found 1.5, expected at most 1; fix the value",
    ),
    "negatives of what is tuned with the model that learns from them": (
        {"systems cort+bm25-cross tune": "RR@10", "rerankers cross pairs system": "cort+bm25-cross"},
        "systems.cort+bm25-cross: found the circle cort+bm25-cross -> cort+bm25-cross, expected no system to wait for "
        "itself; break it, or give a re-ranker of several of them a copy under another name",
    ),
    "fused twice": (
        {"systems new": {"fuse": {"systems": ["bm25", "bm25"]}}},
        "systems.new.fuse.systems: found bm25 2 times, expected each system once; remove one",
    ),
    "fused alone": (
        {"systems new": {"fuse": {"systems": ["bm25"]}}},
        "systems.new.fuse.systems: found ['bm25'], expected at least 2 of them; fix the value",
    ),
    "same part twice": (
        {"systems cort+bm25 interleave": ["bm25", "bm25"]},
        "systems.cort+bm25.interleave: found bm25 2 times, expected each system once; remove one",
    ),
    "unknown candidates": (
        {"systems cort+bm25-cross rerank": "nothing"},
        "systems.cort+bm25-cross.rerank: found 'nothing', expected one of " + SYSTEMS + "; add it or fix the name",
    ),
    "unknown re-ranker": (
        {"systems cort+bm25-cross reranker": "crosss"},
        "systems.cort+bm25-cross.reranker: found 'crosss', expected one of cross; did you mean cross?",
    ),
    "no re-ranker": (
        {"systems cort+bm25-cross reranker": GONE},
        "systems.cort+bm25-cross: found no reranker, expected one of cross; name it",
    ),
    "deeper than scored": (
        {"systems cort+bm25-cross depth": 21},
        "systems.cort+bm25-cross.depth: found 21, expected at most 20, the candidates that are retrieved (depth) and "
        "scored (rerankers.cross.depth); lower it or raise these",
    ),
    "deeper than retrieved": (
        {"systems cort+bm25-cross depth": 11, "depth": 10},
        "systems.cort+bm25-cross.depth: found 11, expected at most 10, the candidates that are retrieved (depth) and "
        "scored (rerankers.cross.depth); lower it or raise these",
    ),
    # Published runs.
    "one run for two splits": (
        {"splits dev": {"queries": "q.tsv", "qrels": "r.tsv"}, "systems published run": "run.trec"},
        "systems.published.run: found one path for the splits test, dev, expected {split} in it; add it",
    ),
    "run of a training split": (
        {"systems published run": {"train": "a.trec", "test": "b.trec"}},
        "systems.published.run: found the split 'train', expected one of test; fix the name",
    ),
    # Evaluation.
    "unknown baseline": (
        {"evaluation baseline": "BM25"},
        "evaluation.baseline: found 'BM25', expected one of " + SYSTEMS + "; add it or fix the name",
    ),
    "one example": (
        {"evaluation disagreements": ["cort"]},
        "evaluation.disagreements: found cort alone, expected two systems or none; name another",
    ),
    "contrast with an unknown system": (
        {"evaluation contrasts": [["cort", "CORT"]]},
        "evaluation.contrasts: found 'CORT', expected one of " + SYSTEMS + "; add it or fix the name",
    ),
    "contrast of a system with itself": (
        {"evaluation contrasts": [["cort", "cort"]]},
        "evaluation.contrasts: found cort against itself, expected two systems; name another",
    ),
    "contrast of three systems": (
        {"evaluation contrasts": [["cort", "bm25", "cort+bm25"]]},
        "evaluation.contrasts.0: found ['cort', 'bm25', 'cort+bm25'], expected at most 2 of them; fix the value",
    ),
    "contrast that stands there twice": (
        {"evaluation contrasts": [["cort", "bm25"], ["cort", "bm25"]]},
        "evaluation.contrasts: found [cort, bm25] 2 times, expected each pair once; remove one",
    ),
    "contrast of systems without a common split": (
        {
            "splits dev": {"queries": "q.tsv", "qrels": "r.tsv"},
            "systems published run": {"test": "a.trec"},
            "systems other": {"run": {"dev": "b.trec"}},
            "evaluation contrasts": [["published", "other"]],
        },
        "evaluation.contrasts: found published and other, which share no split with each other and bm25, expected one "
        "that is evaluated; name others",
    ),
    "unknown measure": (
        {"evaluation measures": ["MRR@10"]},
        "evaluation.measures: found 'MRR@10', expected one of RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, "
        "Success@k or Judged@k with k from 1; fix it",
    ),
    "measure twice": (
        {"evaluation depth_measures": ["RR@10", "RR@10"]},
        "evaluation.depth_measures: found RR@10 2 times, expected each measure once; remove one",
    ),
    "unknown measure of a split": (
        {"splits test measures": ["RR@10", "P"]},
        "splits.test.measures: found 'P', expected one of RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, "
        "Success@k or Judged@k with k from 1; fix it",
    ),
    "measures of training": (
        {"splits train measures": ["RR@10"]},
        "splits.train.measures: found measures, expected none, as the split is not evaluated; remove them",
    ),
    "alpha of none": (
        {"evaluation alpha": 0},
        "evaluation.alpha: found 0, expected more than 0; fix the value",
    ),
    "k1 beside tuning": (
        {"lexical bm25 k1": 0.9},
        "lexical.bm25.k1: found k1 beside tune, expected one of them, as tune chooses k1 and b; remove one",
    ),
    "other texts under the name of the passages": (
        {"lexical bm25": {"expand": "doc2query"}},
        "lexical.bm25: found expand, expected the passages as they are; give the index another name",
    ),
    "an index of an unknown expander": (
        {"lexical expanded expand": "doc2quer"},
        "lexical.expanded.expand: found 'doc2quer', expected one of doc2query; did you mean doc2query?",
    ),
    "an index of an unknown weigher": (
        {"lexical weighed weigh": "x"},
        "lexical.weighed.weigh: found 'x', expected one of deepct; add it or fix the name",
    ),
    "an index that is expanded and weighed": (
        {"lexical expanded weigh": "deepct"},
        "lexical.expanded: found expand, weigh, expected one of them; make two indexes",
    ),
    "an expander of nothing": (
        {"expanders doc2query": {}},
        "expanders.doc2query: found nothing, expected exactly one of file, pretrained; keep one",
    ),
    "an expander of two origins": (
        {"expanders doc2query pretrained": "model"},
        "expanders.doc2query: found file, pretrained, expected exactly one of file, pretrained; keep one",
    ),
    "a released expander at no commit": (
        {"expanders doc2query": {"pretrained": "a/b", "revision": "main"}},
        "expanders.doc2query.revision: found 'main', expected a commit, 40 hexadecimal digits; name it, as a branch "
        "moves",
    ),
    "what only a model has beside predictions": (
        {"expanders doc2query top_k": 5},
        "expanders.doc2query.top_k: found top_k with file, expected none, as the queries are there already; remove it",
    ),
    "draws beside a search": (
        {"expanders doc2query": {"pretrained": "model", "beams": 5, "top_k": 5}},
        "expanders.doc2query.top_k: found top_k beside beams, expected one of them, as beams draw nothing; remove one",
    ),
    "more queries than beams": (
        {"expanders doc2query": {"pretrained": "model", "beams": 5, "queries": 6}},
        "expanders.doc2query.beams: found 5, expected the 6 queries or more; raise it or lower queries",
    ),
    "predictions of another form": (
        {"expanders doc2query": {"file": "p.parquet"}},
        "expanders.doc2query.file: found 'p.parquet', expected a name that ends in .zip, .tar.gz, .tgz, .txt.gz, .txt; "
        "rename or convert the file",
    ),
    "samples without their number": (
        {"expanders doc2query queries": GONE},
        "expanders.doc2query.queries: found no queries with a .zip of samples, expected it with a .zip alone; say how "
        "many are appended",
    ),
    "a number of samples without any": (
        {"expanders doc2query file": "p.txt"},
        "expanders.doc2query.queries: found queries with one line per passage, expected it with a .zip alone; remove "
        "it, as all of a line are appended",
    ),
    "weighted documents of another form": (
        {"weighers deepct file": "w.tsv"},
        "weighers.deepct.file: found 'w.tsv', expected a name that ends in .zip, .jsonl.gz, .jsonl; rename or convert "
        "the file",
    ),
    "a weigher of nothing": (
        {"weighers deepct": {"scale": 50}},
        "weighers.deepct: found nothing, expected exactly one of file, pretrained; keep one",
    ),
    "what only a model has beside weights": (
        {"weighers deepct scale": 50},
        "weighers.deepct.scale: found scale with file, expected none, as the weights are there already; remove it",
    ),
    "a released weigher at no commit": (
        {"weighers deepct": {"pretrained": "a/b", "revision": "main"}},
        "weighers.deepct.revision: found 'main', expected a commit, 40 hexadecimal digits; name it, as a branch moves",
    ),
    "text for a truth value": (
        {"protect": "never"},
        "protect: found 'never', expected true or false; fix the value",
    ),
    "unknown measure of tuning": (
        {"lexical bm25 tune": {"measure": "recall"}},
        "lexical.bm25.tune.measure: found 'recall', expected one of RR, RR@k, nDCG, nDCG@k, R@k, AP, AP@k, P@k, "
        "Success@k or Judged@k with k from 1; fix it",
    ),
}


@pytest.mark.parametrize(("changes", "line"), MISTAKES.values(), ids=MISTAKES)
def test_mistake_is_reported_in_one_line_and_no_other(changes, line):
    assert complaints(changes) == [line]


@pytest.mark.parametrize("line", [line for _, line in MISTAKES.values()], ids=MISTAKES)
def test_line_has_place_found_expected_fix(line):
    assert re.fullmatch(r"[^:]+: found .+, expected .+; .+", line)


def test_all_mistakes_are_reported_at_once():
    lines = complaints(
        {
            "colour": "red",
            "seed": -1,
            "encoders encoder polling": "mean",
            "encoders encoder margin": "wide",
            "splits validation": GONE,
            "systems bm25": {"retrieve": "nobody"},
            "systems a": {"interleave": ["b", "cort"]},
            "systems b": {"interleave": ["a", "cort"]},
            "evaluation baseline": "c",
        }
    )
    assert [line.split(": found ")[0] for line in lines] == [
        "encoders.encoder",
        "encoders.encoder.margin",
        "evaluation.baseline",
        "seed",
        "splits",
        "systems.a",
        "systems.bm25.retrieve",
        "top level",
    ]


def test_two_unknown_keys_of_one_mapping_are_two_lines():
    lines = complaints({"lexical bm25 k1_": 1.0, "lexical bm25 tun": {}})
    assert [line.split("; ")[1] for line in lines] == ["did you mean k1?", "did you mean tune?"]


def test_a_broken_part_is_not_taken_for_a_missing_one():
    # The encoder and the split exist, whatever is wrong inside.
    assert len(complaints({"encoders encoder margin": "wide", "splits test qrels": 5})) == 2


def test_keys_that_are_no_text_are_named():
    config = changed({})
    config["splits"][2019] = config["splits"].pop("test")
    with pytest.raises(ConfigError) as caught:
        complete(config, "tiny.yaml")
    assert str(caught.value) == (
        "tiny.yaml: splits: found the key 2019, which is no text, expected a name; put it in quotes"
    )


def test_models_need_training_splits():
    lines = complaints({"splits validation": GONE, "splits train": GONE, "lexical bm25": GONE})
    assert lines == [
        f"splits: found no split {split}, expected it for training {model}; add it"
        for split in ("train", "validation")
        for model in ("encoders.encoder", "rerankers.cross")
    ]


def test_tuning_needs_train():
    config = {
        "dataset": "x",
        "collection": {"passages": "p.tsv"},
        "splits": {"test": {"queries": "q.tsv", "qrels": "r.tsv"}},
        "systems": {"bm25": {"retrieve": "bm25"}},
    }
    complete(config, "x.yaml")
    with pytest.raises(
        ConfigError, match=r"^x\.yaml: lexical\.bm25\.tune: found no split train, expected training queries"
    ):
        complete(config | {"lexical": {"bm25": {"tune": {}}}}, "x.yaml")


def test_pydocs_makes_its_own_splits():
    lines = complaints(
        {"collection": {"pydocs": {}}, "splits": {"train": {}, "validation": {"hold_out": 3}, "test": {}, "dev": {}}}
    )
    assert lines == [
        "splits.dev: found the split dev, expected train, validation, test, as pydocs makes them; remove it",
        "splits.validation: found hold_out, expected none, as pydocs makes the split; remove it",
    ]


def circle_of(changes):
    """Return the circle of the one complaint."""
    (line,) = complaints(changes)
    match = re.fullmatch(
        r"systems\.(\S+): found the circle (.+), expected no system to wait for itself; "
        r"break it, or give a re-ranker of several of them a copy under another name",
        line,
    )
    names = match[2].split(" -> ")
    assert match[1] == names[0] == names[-1]
    return set(names)


def test_circle_of_itself():
    assert circle_of({"systems a": {"interleave": ["a", "bm25"]}}) == {"a"}


def test_circle_through_interleave():
    changes = {"systems a": {"interleave": ["b", "bm25"]}, "systems b": {"interleave": ["bm25", "a"]}}
    assert circle_of(changes) == {"a", "b"}


def test_circle_through_rerank():
    changes = {
        "systems a": {"interleave": ["b", "bm25"]},
        "systems b": {"rerank": "a", "reranker": "other"},
        "rerankers other": {"base_model": "small", "pairs": {"last_rank": 20}},
    }
    assert circle_of(changes) == {"a", "b"}


def test_circle_through_what_an_encoder_learns_from():
    assert circle_of({"encoders encoder triples system": "cort"}) == {"cort"}
    assert circle_of({"encoders encoder triples system": "cort+bm25"}) == {"cort+bm25", "cort"}


def test_circle_through_what_filters_predicted_queries():
    changes = {"expanders doc2query filter": {"reranker": "cross"}, "rerankers cross pairs system": "expanded"}
    assert circle_of(changes) == {"expanded"}


def test_circle_through_what_a_reranker_learns_from():
    assert circle_of({"rerankers cross pairs system": "cort+bm25-cross"}) == {"cort+bm25-cross"}


def test_circle_through_the_shared_scores_of_a_reranker():
    # `twice` waits for the scores of `cross`, which wait for its candidates, made by `cross`.
    changes = {
        "systems mixed": {"interleave": ["cort+bm25-cross", "bm25"]},
        "systems twice": {"rerank": "mixed", "reranker": "cross"},
    }
    assert circle_of(changes) == {"mixed", "cort+bm25-cross"}


def test_a_system_behind_a_circle_is_not_blamed():
    changes = {"systems a": {"interleave": ["b", "bm25"]}, "systems b": {"interleave": ["b", "bm25"]}}
    assert circle_of(changes) == {"b"}


def test_no_circle_where_an_encoder_learns_from_reranked_bm25():
    config = complete(
        changed(
            {
                "systems teacher": {"rerank": "bm25", "reranker": "cross"},
                "encoders encoder triples system": "teacher",
            }
        ),
        "tiny.yaml",
    )
    assert teachers(config) == ["teacher", "bm25"]
    # On training queries the candidates of `cort+bm25-cross` would wait for the encoder.
    assert reranked_by(config, "cross", "train") == ["bm25"]
    assert reranked_by(config, "cross", "test") == ["cort+bm25", "bm25"]


def test_published_runs_that_share_no_split():
    files = {"queries": "q.tsv", "qrels": "r.tsv"}
    lines = complaints(
        {
            "splits dev": files,
            "systems published run": {"test": "a.trec"},
            "systems other": {"run": {"dev": "b.trec"}},
            "systems both": {"interleave": ["published", "other"]},
        }
    )
    assert lines == ["systems.both: found no split its published runs share, expected one at least; add run files"]


def test_duplicate_keys(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("dataset: a\nsystems:\n  bm25: {retrieve: bm25}\n  bm25: {retrieve: x}\ndataset: b\n")
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value).split("\n") == [
        f"{path}: row 4: found the key 'bm25' again (first in row 3), expected each key once; rename or remove one",
        f"{path}: row 5: found the key 'dataset' again (first in row 1), expected each key once; rename or remove one",
    ]


def test_same_key_in_other_mappings_is_no_duplicate(tmp_path):
    path = tmp_path / "once.yaml"
    path.write_text("a: {x: 1}\nb: {x: 1}\nc: [{x: 1}, {x: 1}]\n")
    read(path)


def test_defaults_are_filled_in_and_the_original_is_left_alone():
    original = changed({"systems cort+bm25-cross depth": GONE, "depth": 15})
    before = yaml.safe_dump(original)
    config = complete(original, "tiny.yaml")
    assert yaml.safe_dump(original) == before
    assert config["seed"] == 42
    assert config["splits"]["test"]["relevance_level"] == 1
    assert config["encoders"]["encoder"]["triples"]["system"] == "bm25"
    assert config["encoders"]["encoder"]["training"]["weight_decay"] == 0.1
    assert config["systems"]["cort+bm25-cross"]["depth"] == min(15, 20)
    assert complete(config, "again") == config


def test_released_triples_are_passed_over_once_unless_the_config_says_more():
    file = {"encoders encoder triples file": "triples.tsv", "rerankers cross pairs file": "triples.tsv"}
    for epochs, changes in ((1, {"encoders encoder training epochs": GONE}), (2, {})):
        config = complete(changed(file | changes), "tiny.yaml")
        assert config["encoders"]["encoder"]["training"]["epochs"] == epochs
        assert config["rerankers"]["cross"]["training"]["epochs"] == 2
        assert complete(config, "again") == config


def test_a_split_has_measures_of_its_own_or_those_of_all():
    other = {"queries": "queries.tsv", "qrels": "qrels.txt", "measures": ["AP@1000"]}
    splits = complete(changed({"evaluation measures": ["RR@10", "R@50"], "splits other": other}), "tiny.yaml")["splits"]
    assert splits["test"]["measures"] == ["RR@10", "R@50"]
    assert splits["other"]["measures"] == ["AP@1000"]
    assert "measures" not in splits["train"]


def test_kinds_and_names():
    config = complete(changed({"systems c.rt": {"retrieve": "encoder"}}), "tiny.yaml")
    kinds = {name: kind_of(config, system) for name, system in config["systems"].items()}
    assert kinds == {
        "bm25": "bm25",
        "cort": "exact",
        "cort-onng": "onng",
        "cort-hnsw": "hnsw",
        "cort+bm25": "interleave",
        "cort+bm25-cross": "rerank",
        "published": "run",
        "expanded": "bm25",
        "weighed": "bm25",
        "c.rt": "exact",
    }
    for kind in set(kinds.values()):
        matched = {name for name in kinds if re.fullmatch(names_of_kind(config, kind), name)}
        assert matched == {name for name in kinds if kinds[name] == kind}


def test_a_reranker_of_late_interaction_retrieves_unless_an_encoder_has_its_name():
    config = complete(changed({**LATE, "systems late": {"retrieve": "late"}}), "tiny.yaml")
    assert kind_of(config, config["systems"]["late"]) == "late_interaction"
    assert used_models(config, "rerankers") == ["cross", "late"]
    assert systems_with(config, "late") == ["late"]
    assert describe(config, "late") == "late interaction late, exact search"
    for index, words in (({}, "probes 32"), ({"probes": "auto"}, "recall 0.99 of exact search")):
        config = complete(changed({**LATE, "systems late": {"retrieve": "late", "ivfpq": index}}), "tiny.yaml")
        assert kind_of(config, config["systems"]["late"]) == "ivfpq"
        assert indexes_of(config, "test") == [("encoder", "onng"), ("encoder", "hnsw"), ("late", "ivfpq")]
        assert describe(config, "late") == f"late interaction late, IVF-PQ with {words}"
    renamed = {name.replace("late", "encoder"): value for name, value in LATE.items()} | {"exports": ["cross"]}
    config = complete(changed(renamed), "tiny.yaml")
    assert kind_of(config, config["systems"]["cort"]) == "exact"
    assert used_models(config, "rerankers") == ["cross"]


def test_names_of_no_system_match_nothing():
    config = {"lexical": {"bm25": {}}, "systems": {"bm25": {"retrieve": "bm25"}}}
    pattern = re.compile(f"^(?P<system>{names_of_kind(config, 'onng')})$")
    assert not any(pattern.match(name) for name in ("", "bm25", "onng", "(?!)"))


def test_splits_of_published_runs_and_what_is_made_from_them():
    files = {"queries": "q.tsv", "qrels": "r.tsv"}
    config = complete(
        changed(
            {
                "splits dev": files,
                "splits dl19": files,
                "systems published run": {"dl19": "a.trec", "test": "b.trec"},
                "systems mixed": {"interleave": ["published", "bm25"]},
                "systems mixed-cross": {"rerank": "mixed", "reranker": "cross"},
            }
        ),
        "tiny.yaml",
    )
    assert evaluated_splits(config) == ["test", "dev", "dl19"]
    assert splits_of(config, "bm25") == ["test", "dev", "dl19"]
    for name in ("published", "mixed", "mixed-cross"):
        assert splits_of(config, name) == ["test", "dl19"]
    assert reranked_by(config, "cross", "test") == ["cort+bm25", "mixed"]
    assert reranked_by(config, "cross", "dev") == ["cort+bm25"]
    assert reranked_by(config, "cross", "train") == []


NOTHING_LEARNT = {key: GONE for key in ("encoders", "rerankers", "exports", "evaluation", "papers", "submissions")}
NOTHING_LEARNT |= {"lexical bm25": GONE, "systems": {"bm25": {"retrieve": "bm25"}}}


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({}, ["train=test", "validation=test"]),
        (
            {"encoders encoder checkpoint": "last", "rerankers cross checkpoint": "last"},
            ["train=test", "validation=test"],
        ),
        (NOTHING_LEARNT, []),
        (NOTHING_LEARNT | {"lexical bm25": {"tune": {}}}, ["train=test"]),
        (
            NOTHING_LEARNT
            | {"systems fused": {"fuse": {"systems": ["bm25", "expanded"], "method": "linear", "tune": "RR@10"}}}
            | {"systems expanded": {"retrieve": "expanded"}},
            ["validation=test"],
        ),
        # Nobody measures what has no judgements, nor what is drawn apart.
        ({"splits other": {"queries": "q.tsv"}}, ["train=test", "validation=test"]),
        ({"splits train": GONE, "splits validation": GONE} | NOTHING_LEARNT, []),
        # It may not be sure that two samples share a query.
        (
            {"splits train sample": 9, "splits dev": {**TRAINING_FILES, "sample": 9}},
            ["train=test", "train=dev", "validation=test", "validation=dev"],
        ),
        (
            {"splits validation": {**TRAINING_FILES, "without": "train"}},
            ["train=validation", "train=test", "validation=test"],
        ),
    ],
)
def test_splits_that_may_share_no_query(changes, apart):
    found = splits_apart(complete(changed(changes), "tiny.yaml"))
    assert [f"{first}={second}" for first, second in found] == apart


def test_splits_do_not_leave_out_each_other():
    assert complaints({"splits test without": ["train"], "splits train without": "test"}) == [
        f"splits.{name}.without: found {other!r}, expected another split made of whole files; name one"
        for name, other in (("test", "train"), ("train", "test"))
    ]


def test_a_split_may_leave_out_several_others():
    files = {"queries": "q.tsv", "qrels": "r.tsv"}
    config = complete(
        changed({"splits dev": {**files, "without": "test"}, "splits train without": ["test", "dev"]}), "tiny.yaml"
    )
    for split in ("train", "validation"):
        found = excluded_queries(config, SimpleNamespace(split=split))
        assert found == [f"results/tiny/collection/queries.{name}.parquet" for name in ("test", "dev")]


def test_an_experiment_without_judgements_has_runs_and_pages():
    config = complete(
        changed({"splits test": {"queries": "q.tsv"}, "systems cort-hnsw hnsw": {"ef": "auto"}}), "tiny.yaml"
    )
    assert (evaluated_splits(config), comparisons(config), of_systems(config, MEASURES)) == ([], [], [])
    assert explorers(config) == ["results/tiny/report/explore/test/index.html"]
    assert overlaps(config) == ["results/tiny/overlap/test.json"]
    del config["splits"]["validation"]
    wildcards = Wildcards(fromdict={"split": "test", "encoder": "encoder", "index": "hnsw"})
    assert audit_of(config, "cort-hnsw") == "results/tiny/audit/test/encoder.hnsw.json"
    assert judgements(config, wildcards) == []
    assert "--measures" not in settings.audit(config, wildcards)


def test_used_models():
    config = complete(changed({"encoders unused": {"base_model": "small", "triples": {"last_rank": 20}}}), "tiny.yaml")
    assert used_models(config, "encoders") == ["encoder"]
    assert used_models(config, "rerankers") == ["cross"]


def released(**changes):
    """An experiment whose only encoder is released, with nothing to train."""
    encoder = {"base_model": "small", "released": "a.ckpt", "dimension": 16}
    systems = {
        "bm25": {"retrieve": "bm25"},
        "cort": {"retrieve": "encoder"},
        "onng": {"retrieve": "encoder", "onng": {}},
    }
    changes = {"encoders encoder": encoder, "rerankers": {}, "systems": systems, "exports": ["encoder"], **changes}
    gone = {"splits train": GONE, "splits validation": GONE, "lexical bm25": GONE, "submissions": {}, "evaluation": {}}
    return complete(changed(changes | gone), "tiny.yaml")


def test_a_released_encoder_needs_no_training_queries_and_no_teacher():
    config = released()
    assert used_models(config, "encoders") == ["encoder"]
    assert trained_models(config, "encoders") == []
    assert teachers(config) == []
    assert re.fullmatch(encoders_pattern(config, trained=False), "encoder")
    assert not re.fullmatch(encoders_pattern(config, trained=True), "encoder")


def test_a_released_model_is_a_base_model_of_its_own_name():
    ready = {"pretrained": "model", "query_length": 20}
    tuned = {"pretrained": "owner/name", "revision": COMMIT, "training": {}}
    changes = {"encoders ready": ready, "encoders tuned": tuned, "rerankers again": {"pretrained": "other"}}
    config = complete(changed({**changes, "training_depth": 100}), "tiny.yaml")
    assert config["base_models"]["encoder.ready"] == {
        "pretrained": "model",
        "cleaning": "raw",
        "vocabulary_size": 16000,
    }
    assert config["base_models"]["encoder.tuned"]["revision"] == COMMIT
    encoders = config["encoders"]
    assert encoders["ready"].keys() == {
        *("base_model", "pretrained", "query_length", "precision", "storage", "checkpoint", "onng", "hnsw")
    }
    assert [is_trained(encoders[name]) for name in ("ready", "tuned", "encoder")] == [False, True, True]
    assert not is_trained(config["rerankers"]["again"])
    folders = [weights(config, "encoders", name).split("/")[2:4] for name in ("ready", "tuned")]
    assert folders == [["base_models", "encoder.ready"], ["encoders", "tuned"]]


def test_an_encoder_and_a_reranker_of_one_name_share_nothing():
    cross = changed({})["rerankers"]["cross"]
    systems = {
        "bm25-both": {"rerank": "bm25", "reranker": "encoder"},
        "cort-both": {"rerank": "cort", "reranker": "up"},
    }
    changes = {"rerankers encoder": cross, "rerankers up": {"pretrained": "b"}, "encoders up": {"pretrained": "a"}}
    changes |= {f"systems {name}": system for name, system in systems.items()}
    changes["exports"] = ["encoders.encoder", "rerankers.encoder", "cross"]
    config = complete(changed(changes), "tiny.yaml")
    titles = trainings(config)
    assert list(titles.values()) == ["encoder (encoder)", "cross", "encoder (re-ranker)"]
    assert len({*of_trainings(config, CURVE).values()}) == len(of_trainings(config, CURVE)) == 3
    assert [place_of_base_model(config, name) for name in ("encoder.up", "reranker.up", "small")] == [
        *("encoders.up", "rerankers.up", "base_models.small")
    ]
    assert [config["base_models"][f"{kind}.up"]["pretrained"] for kind in ("encoder", "reranker")] == ["a", "b"]
    assert systems_with(config, "encoders.encoder") == ["cort", "cort-onng", "cort-hnsw"]
    assert systems_with(config, "rerankers.encoder") == ["bm25-both"]
    assert [path.split("/")[3] for path in exports(config)] == ["encoders.encoder", "rerankers.encoder", "cross"]


def test_a_released_weigher_and_a_base_model_may_have_one_name():
    config = complete(changed({"weighers deepct": {"pretrained": "a"}, "base_models deepct": {"pretrained": "b"}}), "t")
    assert [config["base_models"][name]["pretrained"] for name in ("deepct", "weigher.deepct")] == ["b", "a"]


def test_a_released_encoder_may_be_part_of_what_another_learns_from():
    trained = {"base_model": "small", "triples": {"system": "cort", "last_rank": 20}}
    systems = {"cort": {"retrieve": "encoder"}, "second": {"retrieve": "other"}, "bm25": {"retrieve": "bm25"}}
    files = {"queries": "q.tsv", "qrels": "r.tsv"}
    encoders = {"encoder": {"base_model": "small", "released": "a.ckpt"}, "other": trained}
    changes = {"encoders": encoders, "rerankers": {}, "systems": systems, "exports": ["other"], "submissions": {}}
    config = complete(changed(changes | {"evaluation": {}, "splits train": files}), "tiny.yaml")
    assert trained_models(config, "encoders") == ["other"]
    assert teachers(config) == ["cort"]


def test_exported_models_and_the_systems_they_are_part_of():
    config = complete(changed({}), "tiny.yaml")
    models = named_models(config)
    assert [models[name] for name in config["exports"]] == [("encoders", "encoder"), ("rerankers", "cross")]
    assert systems_with(config, "encoder") == ["cort", "cort-onng", "cort-hnsw"]
    assert systems_with(config, "cross") == ["cort+bm25-cross"]
    assert exports(config) == [f"results/tiny/models/{name}/README.md" for name in ("encoder", "cross")]


def test_descriptions():
    config = complete(changed({}), "tiny.yaml")
    assert [describe(config, name) for name in config["systems"]] == [
        "BM25, Anserini",
        "encoder encoder, exact search",
        "encoder encoder, ONNG with epsilon 0.2",
        "encoder encoder, HNSW with recall 0.9 of exact search",
        "cort and bm25 interleaved",
        "first 10 of cort+bm25 re-ranked by cross",
        "published run",
        "BM25, Anserini, passages expanded by doc2query",
        "BM25, Anserini, terms weighed by deepct",
    ]


def test_settings_that_decide_nothing_are_left_out_of_those_that_decide():
    config = complete(changed({}), "tiny.yaml")
    decisive = deciding(config, schema_of(Experiment))
    assert "protect" not in decisive
    assert decisive["seed"] == config["seed"]
    assert decisive["systems"] == config["systems"]
    assert "protect" in config


def test_removed_keys_are_refused_with_what_to_do_instead():
    train = "which was removed; train elsewhere, and name the model as pretrained or its"
    changes = {"export_onnx": ["fp32"], "expanders doc2query training": {}, "weighers deepct base_model": "small"}
    assert complaints(changes) == [
        f"expanders.doc2query: found the key training, {train} predictions as file",
        "top level: found the key export_onnx, which was removed; convert the folder that exports writes with "
        "`optimum` or sentence-transformers",
        f"weighers.deepct: found the key base_model, {train} weighted documents as file",
    ]


def test_tuning_without_validation_is_refused(tmp_path):
    files = {"queries": "q.tsv", "qrels": "r.tsv"}
    config = {
        "dataset": "toy",
        "collection": {"passages": "c.tsv"},
        "splits": {"test": files},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "other": {"retrieve": "bm25", "bm25": {"k1": 1.0, "b": 0.5}},
            "both": {"fuse": {"systems": ["bm25", "other"], "method": "linear", "tune": "RR@10"}},
        },
    }
    with pytest.raises(ConfigError) as caught:
        complete(config, "toy.yaml")
    assert str(caught.value) == (
        "toy.yaml: systems.both.fuse.tune: found no split validation, expected validation queries to tune on; add the "
        "split"
    )


def test_a_merge_keeps_the_settings_of_its_method_and_is_described_by_them():
    systems = {
        "turns": {"fuse": {"systems": ["bm25", "cort"]}},
        "ranks": {"fuse": {"systems": ["bm25", "cort"], "method": "rrf", "k": 10}},
        "equal": {"fuse": LINEAR},
        "given": {"fuse": {**LINEAR, "normalization": "z-score", "weights": [0.25, 0.75]}},
        "tuned": {"fuse": {**LINEAR, "tune": "nDCG@10"}},
        "light": {"rerank": "bm25", "reranker": "cross", "weight": 0.65},
        "chosen": {"rerank": "tuned", "reranker": "cross", "tune": "RR@10"},
    }
    config = complete(changed({f"systems {name}": system for name, system in systems.items()}), "tiny.yaml")
    kept = {name: config["systems"][name]["fuse"] for name in systems if "fuse" in systems[name]}
    assert kept["turns"] == {"systems": ["bm25", "cort"], "method": "interleave"}
    assert kept["ranks"] == systems["ranks"]["fuse"]
    assert kept["equal"] == {**LINEAR, "normalization": "min-max"}
    assert kept["tuned"] == {**LINEAR, "normalization": "min-max", "tune": "nDCG@10"}
    assert config["systems"]["cort+bm25-cross"]["weight"] == 1
    assert {name: describe(config, name) for name in systems} == {
        "turns": "bm25 and cort merged by interleave",
        "ranks": "bm25 and cort merged by rrf, k = 10",
        "equal": "bm25 and cort merged by linear combination of min-max scores, equal weights",
        "given": "bm25 and cort merged by linear combination of z-score scores, weights 0.25, 0.75",
        "tuned": "bm25 and cort merged by linear combination of min-max scores, weights tuned for nDCG@10 on "
        "validation",
        "light": "first 20 of bm25 re-ranked by cross, its weight 0.65",
        "chosen": "first 20 of tuned re-ranked by cross, its weight tuned for RR@10 on validation",
    }
    # What is tuned waits for the re-ranker's scores of validation candidates; who only re-ranks does not.
    assert reranked_by(config, "cross", "validation") == ["tuned"]
    assert reranked_by(config, "cross", "train") == []


def test_validation_runs_are_as_deep_as_those_that_weights_are_for():
    def depth_of(split, changes):
        return settings.depth(complete(changed(changes), "tiny.yaml"), Wildcards(fromdict={"split": split}))

    tuned = {"systems new": {"fuse": {**LINEAR, "tune": "RR@10"}}}
    assert depth_of("validation", {}) == depth_of("train", tuned) == ["--depth", "30"]
    assert depth_of("validation", tuned) == depth_of("test", {}) == ["--depth", "50"]


def test_an_experiment_takes_whole_sections_from_the_one_it_extends(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text(yaml.safe_dump(changed({"latency": {"split": "test", "systems": ["bm25"]}})), "utf-8")
    own = {"extends": str(base), "depth": 40, "latency": None, "submissions": {}}
    expected = changed({"depth": 40, "submissions": {}})
    assert complete(own, "own.yaml") == complete(expected, "own.yaml")


def test_a_key_without_a_value_that_leaves_nothing_out_is_refused(tmp_path):
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(changed({})), "utf-8")
    with pytest.raises(
        ConfigError, match=r"^own\.yaml: found the key latncy without a value, expected one of .*; fix the"
    ):
        complete({"extends": str(tmp_path / "base.yaml"), "latncy": None}, "own.yaml")


def test_a_mistake_about_the_experiment_that_is_extended_is_one_line(tmp_path):
    (tmp_path / "base.yaml").write_text("extends: other.yaml\n")
    found = {
        str(tmp_path / "none.yaml"): "none.yaml: found no readable file",
        str(tmp_path / "base.yaml"): "which extends another, expected a whole one; name that",
        3: "own.yaml: extends: found 3, expected the path of an experiment; name one file",
        "": "own.yaml: extends: found '', expected the path of an experiment; name one file",
    }
    for path, line in found.items():
        with pytest.raises(ConfigError) as caught:
            complete({"extends": path}, "own.yaml")
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)
