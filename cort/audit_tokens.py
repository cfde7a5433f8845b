"""Measure an IVF-PQ index of token vectors against exact search by late interaction, as `audit` does for graphs.

For each number of probes and each depth: which part of the exact first results is found, the time of one query, and how
much lower the experiment's measures are. All is timed one query at a time in one thread, without the encoding of the
query, after a round that warms it. Of queries with judgements a sample is taken.

Reads:  a re-ranker folder, a token cache of the queries, what `encode_tokens` wrote of all passages, the folder that
        `ivfpq` wrote of that, qrels.parquet
Writes: audit.json (see cort/retrieval/audits.py)
Usage:  python -m cort.audit_tokens --model rerankers/late/best --queries queries.dev.arrow
            --passages 1-of-2.arrow 2-of-2.arrow --qrels qrels.parquet --index ivfpq --widths 8 16 32 --candidates 1024
            --depths 10 100 1000 --measures RR@10 --sample 500 --seed 42 --encoder late --split dev --output audit.json
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cort.evaluation.measures import Qrels
from cort.formats.artifacts import write_artifact
from cort.formats.records import Ranking
from cort.formats.token_embeddings import open_token_shards
from cort.formats.tokens import Tokens
from cort.models.tokenizer import fingerprint
from cort.retrieval.auditing import (
    Truth,
    audit_exact,
    audit_searches,
    check_options,
    cut,
    read_judgements,
    sample_judged,
)
from cort.retrieval.audits import Audit
from cort.retrieval.graphs import TOKEN_INDEXES
from cort.retrieval.options import AuditOptions, IvfPqOptions, check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.options import required

if TYPE_CHECKING:
    from cort.models.late_interaction import LateInteraction
    from cort.models.tokenizer import Template
    from cort.retrieval.max_similarity import Rows, Vectors
    from cort.retrieval.token_scores import QueryVectors

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(IvfPqOptions, AuditOptions):
    """Options of this stage."""

    model: str = required("FOLDER", "a re-ranker of the kind late_interaction")
    queries: str = required("ARROW", "token cache")


def encode(
    options: Options, model: LateInteraction, template: Template, judged: Qrels | None
) -> tuple[list[str], list[QueryVectors]]:
    """Draw queries with judgements and encode them: their ids and vectors."""
    from cort.models.late_interaction import QUERY
    from cort.models.transformer import choose_device
    from cort.retrieval.token_runs import encoded

    queries = Tokens(options.queries, fingerprint(options.model))
    ids = queries.ids.to_pylist()
    drawn = sample_judged(ids, judged, options.sample, options.seed, str(queries.path))
    with lease() as leased:
        device = choose_device(options.threads, leased)
        model.place(device, options.precision)
        texts = model.texts(queries, template, QUERY)
        parts = encoded(lambda rows: texts.vectors(model, rows, device), queries, drawn)
        return [ids[row] for row in drawn], [one for _, vectors in parts for one in vectors]


def stage(options: Options) -> None:
    """Open all, search exactly, search the index, write."""
    import torch

    from cort.models.late_interaction import load_token_encoder, origin_of
    from cort.retrieval.ivfpq import one_thread_each, open_ivfpq, single_threaded
    from cort.retrieval.max_similarity import TokenIndex

    kind = TOKEN_INDEXES[options.kind]
    widths = check_options(options, kind)
    check_positive(options, "candidates")
    model, template = load_token_encoder(options.model)
    shards = open_token_shards(options.passages, origin_of(options.model, model.settings))
    passages = TokenIndex(shards, model.settings.similarity)
    index = open_ivfpq(options.index, shards, passages)
    judged = read_judgements(options)
    ids, vectors = encode(options, model, template, judged)

    def search(query: QueryVectors, *, width: float, depth: int) -> tuple[Vectors, Rows]:
        return index.search(query, int(width), options.candidates, depth)

    def name(query_id: str, found: tuple[Vectors, Rows]) -> Ranking:
        return Ranking(query_id, passages.ids(found[1]), found[0].astype(np.float64))

    torch.set_num_threads(options.threads)
    best = list(map(name, ids, passages.search(vectors, options.depths[-1])))
    measures, asked = sorted(options.measures), {query_id: (judged or {}).get(query_id, {}) for query_id in ids}
    truth = Truth(vectors, cut(best, options.depths), asked, measures, options.relevance_level)
    with one_thread_each():
        single_threaded()
        exact = list(audit_exact(lambda query, depth: passages.search([query], depth), truth))
        searches = list(audit_searches(kind, search, name, truth, widths))
    found = Audit(
        encoder=options.encoder,
        exact=exact,
        index=options.kind,
        model=index.meta.model,
        parameter=kind.parameter,
        passages=len(passages),
        queries=len(asked),
        searches=searches,
        split=options.split,
        storage_bytes=sum(index.meta.bytes.values()),
        vectors_per_token=options.candidates,
    )
    write_artifact(options.output, found)
    for one in found.searches:
        words = (kind.parameter, one.width, one.depth, one.recall, one.milliseconds.mean)
        log.info("%s %g, depth %d: recall %.4f, %.2f ms per query", *words)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())
