"""The rules as they are written, and what tests of the workflow read from Snakemake's output."""

import contextlib
import importlib
import os
import re
import signal

from snakemake.api import SnakemakeApi
from snakemake.settings.types import OutputSettings, Quietness, ResourceSettings

from cort.runtime import cli
from cort.runtime.command_line import parse_options
from cort.runtime.commands import module_of as module_of_command
from tests.support.common import ROOT
from tests.support.forkclient import PLACE
from tests.support.rules_once import remember_rules
from workflow.snakemake_api import plan

#: systems of the tiny experiment
SYSTEMS = ("bm25", "cort", "cort-onng", "cort-hnsw", "cort+bm25", "cort+bm25-cross", "published", "expanded")
#: modules of cort/ that people call and no rule runs
TOOLS = {"search", "explore", "api", "gate", "matrix", "publish"}


@contextlib.contextmanager
def process_as_it_was():
    """Undo what the Snakefile does to a process: variables of its environment, and what it does at SIGUSR1."""
    environment, handler = dict(os.environ), signal.getsignal(signal.SIGUSR1)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        signal.signal(signal.SIGUSR1, handler)


def plan_jobs(arguments):
    """All jobs of a command line of Snakemake, and whether they run here."""
    with process_as_it_was():
        return plan(arguments)


def rules():
    """Return name -> rule of Snakemake, of every rule that runs a command."""
    with process_as_it_was(), SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
        workflow = api.workflow(resource_settings=ResourceSettings(cores=1), snakefile=ROOT / "Snakefile", workdir=ROOT)
        return {rule.name: rule for rule in workflow._workflow.rules if rule.shellcmd}


remember_rules(os.path.dirname(os.environ[PLACE]))
RULES = rules()
# What makes raw files; the tiny experiment has its own.
RAW = {"pydocs", "download"}
#: rules without a job in the tiny experiment: its models are trained, without a teacher, no weights tuned, no latency
UNUSED = RAW | {f"pretrained_{kind}" for kind in ("encoder", "reranker", "weigher", "expander")}
UNUSED |= {"import_split", "generate", "aggregate", "overlap", "agreement", "latency"}
UNUSED |= {"passage_queries", "judge", "embed", "embed_queries", "import_encoder", "expand", "weigh", "score_triples"}
UNUSED |= {"score_served"}
UNUSED |= {"encode_impacts", "encode_query_impacts", "impact_index", "retrieve_impacts"}
UNUSED |= {"import_triples", "import_pairs"}
UNUSED |= {"tune_weights", "tune_weights_folds", "bm25_tune_folds", "encode_tokens", "retrieve_tokens"}
UNUSED |= {"ivfpq", "audit_ivfpq", "retrieve_ivfpq", "deploy"}


def command_of(rule):
    """Name of the stage that a rule runs, and its command if it has several: ``encode tokens``."""
    return re.match(r"exec python -m cort\.(\w+(?: \w+)?) ", RULES[rule].shellcmd)[1]


def module_of(rule):
    """Name of the stage that a rule runs; some stages serve several rules."""
    return command_of(rule).split()[0]


def stage_modules():
    """Names of the modules that are stages."""
    return {path.stem for path in (ROOT / "cort").glob("*.py")} - {"__init__"} - TOOLS


def leaves(schema, path=""):
    """Every key that has a value of its own with its schema, names of entries as <name>; after its own, a section's."""
    for inner in schema.get("anyOf", ()):
        yield from leaves(inner, path)
    for inner in schema.get("patternProperties", {}).values():
        yield from leaves(inner, f"{path}.<name>")
    for key, part in schema.get("properties", {}).items():
        place = f"{path}.{key}".lstrip(".")
        nested = list(leaves(part, place))
        yield from nested
        if not nested or "anyOf" in part:
            yield place, part


def options_of(command):
    """Options of a stage, or of one of its commands."""
    return importlib.import_module(module_of_command(f"cort.{command}")).Options


def parse(module, words):
    """Parse the words of a stage's command line; exits with 2 for an option that is unknown or missing."""
    command = words[:1] if not words[0].startswith("--") else []
    options = options_of(" ".join([module.removeprefix("cort."), *command]))
    return parse_options(options, cli.parser_of(options).parse_args(words[len(command) :]))


def planned(output):
    """Number of planned jobs per rule, from the first table that Snakemake prints."""
    table = output[output.index("Job stats:") :]
    rows = (line.split() for line in table.splitlines()[3:])
    jobs = {}
    for row in rows:
        if len(row) != 2:
            break
        jobs[row[0]] = int(row[1])
    return jobs


def released_config(tiny):
    """Turn the tiny experiment into one with an encoder that somebody released, and nothing to train."""
    config = {key: tiny[key] for key in ("dataset", "protect", "collection", "base_models", "depth")}
    encoder = {"base_model": "small", "released": "tiny/data/encoder.ckpt", "dimension": 16}
    return config | {
        "splits": {"test": tiny["splits"]["test"]},
        "encoders": {"encoder": {**encoder, "query_length": 24, "passage_length": 64}},
        "systems": {"bm25": {"retrieve": "bm25"}, "cort": {"retrieve": "encoder"}},
    }


def endpoint_config(test):
    """What an experiment has if a model makes queries of passages and judges a split with files."""
    made = {"generate": {"from": "endpoint"}, "sample": 5}
    unjudged = {"queries": "tiny/data/queries.train.tsv"}
    splits = {"test": test, "open": unjudged, "graded": {"judge": {"split": "test"}}, "made": made}
    return {"dataset": "endpoint", "endpoint": {"model": "small"}, "splits": splits}


def unjudged_config(tiny):
    """Turn the tiny experiment into one that has no judgements, and nothing to train."""
    return {key: tiny[key] for key in ("protect", "collection", "depth")} | {
        "dataset": "unjudged",
        "splits": {"test": {"queries": tiny["splits"]["test"]["queries"]}},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "published": tiny["systems"]["published"],
            "both": {"interleave": ["bm25", "published"]},
        },
    }


def ready_config(tiny, model, **more):
    """Turn the tiny experiment into one of released models, of their own files alone; `more` goes with each."""
    origin = {"pretrained": model, **more}
    return {key: tiny[key] for key in ("protect", "collection", "depth")} | {
        "dataset": "ready",
        "splits": {"test": tiny["splits"]["test"]},
        "encoders": {
            "ready": {**origin, "query_prompt": "ba: ", "passage_prompt": "ko: "},
            "other": {**origin, "query_prompt_name": "query", "passage_prompt_name": "document"},
        },
        "rerankers": {"judge": {**origin, "depth": 20}},
        "systems": {name: {"retrieve": name} for name in ("bm25", "ready", "other")}
        | {"bm25-cross": {"rerank": "bm25", "reranker": "judge"}},
    }


def weighed_config(tiny, model, revision):
    """Turn the tiny experiment into one of released models that weigh terms or predict queries."""
    ready = {"pretrained": model, "revision": revision}
    weighers = {"ready": ready}
    expanders = {"drawn": {**ready, "queries": 2}, "found": {**ready, "beams": 5, "queries": 2}}
    lexical = {name: {"weigh": name} for name in weighers} | {name: {"expand": name} for name in expanders}
    config = {key: tiny[key] for key in ("collection", "splits", "base_models", "depth")}
    return config | {
        "dataset": "weighed",
        "weighers": weighers,
        "expanders": expanders,
        "lexical": lexical,
        "systems": {name: {"retrieve": name} for name in ("bm25", *lexical)},
    }


def late_config(tiny, indexed=False):
    """Turn the tiny experiment into one of late interaction, by one model: a first stage, and a re-ranker of BM25's.

    This model and an encoder are trained on triples that somebody released, of queries that are held out, too. If that
    is asked for, there is also a first stage through an index.
    """
    config = {key: tiny[key] for key in ("collection", "splits", "base_models", "depth", "training_depth")}
    cross = tiny["rerankers"]["cross"]
    late = {key: cross[key] for key in ("base_model", "query_length", "depth", "training")}
    encoder = {key: part for key, part in tiny["encoders"]["encoder"].items() if key not in ("onng", "hnsw")}
    taken = {"unknown_ids": "drop"}
    late |= {"kind": "late_interaction", "dimension": 16, "max_length": 64, "term_weights": True, "loss": "softmax"}
    late |= {"ivfpq": {"lists": 16, "bytes": 4}} if indexed else {}
    encoder |= {"ivfpq": {"lists": 8, "bytes": 4}} if indexed else {}
    search = {"probes": "auto", "candidates": 64, "recall": 0.9}
    through = {f"{name}-ivfpq": {"retrieve": name, "ivfpq": {**search}} for name in ("late", "taught")}
    config |= {"audit": {"probes": [1, 4, 16], "candidates": 64, "depths": [10]}} if indexed else {}
    return config | {
        "dataset": "late",
        "encoders": {
            "taught": {**encoder, "triples": {**encoder["triples"], **taken, "file": "tiny/data/triples.train.tsv"}}
        },
        "rerankers": {"late": {**late, "pairs": {**cross["pairs"], **taken, "file": "tiny/data/pairs.train.tsv"}}},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "taught": {"retrieve": "taught"},
            "late": {"retrieve": "late"},
            **(through if indexed else {}),
            "late+bm25": {"interleave": ["late", "bm25"]},
            "bm25-late": {"rerank": "bm25", "reranker": "late", "depth": 20},
        },
    }


def served_config(tiny):
    """Turn the tiny experiment into one of an encoder and a re-ranker behind an API."""
    files = {key: f"tiny/data/{key}.test.tsv" for key in ("queries", "qrels")}
    return {
        "dataset": "served",
        "collection": tiny["collection"],
        "splits": {"test": files},
        "encoders": {"api": {"endpoint": "small", "dimension": 16}},
        "rerankers": {"judge": {"endpoint": "judge", "depth": 5}},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "api": {"retrieve": "api"},
            "bm25-judge": {"rerank": "bm25", "reranker": "judge"},
        },
    }


def sparse_config(tiny):
    """Turn the tiny experiment into one of sparse encoders: one with a model of queries, one without, and a student.

    The student is a dense encoder with negatives from a sparse one.
    """
    config = {key: tiny[key] for key in ("collection", "splits", "base_models", "depth", "training_depth")}
    dense = {key: part for key, part in tiny["encoders"]["encoder"].items() if key not in ("onng", "hnsw")}
    shared = ("base_model", "query_length", "passage_length", "triples", "training")
    sparse = {key: dense[key] for key in shared} | {"kind": "sparse", "loss": "info_nce", "temperature": 1.0}
    return config | {
        "dataset": "sparse",
        "encoders": {
            "learned": sparse,
            "free": {**sparse, "queries": "none"},
            # Deeper than runs of training queries are.
            "student": {**dense, "triples": {**dense["triples"], "system": "interleaved", "last_rank": 40}},
        },
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "learned": {"retrieve": "learned"},
            "free": {"retrieve": "free"},
            "student": {"retrieve": "student"},
            "fused": {"fuse": {"systems": ["learned", "bm25"], "method": "linear", "tune": "RR@10"}},
            "interleaved": {"interleave": ["free", "bm25"]},
        },
        "latency": {"split": "test", "queries": 5, "systems": ["learned", "fused"]},
    }


def learners_config(tiny):
    """Turn the tiny experiment into one of models of all other kinds.

    Those of `late_config` and `sparse_config`, an encoder that learns a second time, from a re-ranker's scores of what
    it retrieves itself, and a T5 that predicts queries.
    """
    late, sparse = late_config(tiny, indexed=True), sparse_config(tiny)
    student = sparse["encoders"]["student"]
    training = student["training"] | {"best_model_metric": "RR@10", "pool_depth": 5}
    second = student | {"triples": {**student["triples"], "system": "student", "last_rank": 20}, "training": training}
    second |= {"start": "student", "teacher": "late", "loss": "margin_mse", "similarity": "inner_product"}
    t5 = {"pretrained": "models/t5", "queries": 2, "passage_length": 64, "query_length": 16}
    return late | {
        "dataset": "learners",
        "shards": 2,
        "encoders": late["encoders"] | sparse["encoders"] | {"second": second},
        "expanders": {"t5": t5},
        "lexical": {"t5": {"expand": "t5"}},
        "systems": late["systems"]
        | sparse["systems"]
        | {"second": {"retrieve": "second"}, "predicted": {"retrieve": "t5"}},
        "latency": sparse["latency"],
    }
