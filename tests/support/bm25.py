"""BM25 by its formula."""

import math


def bm25_scores(bags, query, k1, b):
    """BM25 as Lucene has it, of bags of words with their frequencies."""
    average = sum(sum(bag.values()) for bag in bags.values()) / len(bags)
    scores = dict.fromkeys(bags, 0.0)
    for term in query.split():
        having = [doc_id for doc_id, bag in bags.items() if term in bag]
        idf = math.log(1 + (len(bags) - len(having) + 0.5) / (len(having) + 0.5))
        for doc_id in having:
            frequency, length = bags[doc_id][term], sum(bags[doc_id].values())
            scores[doc_id] += idf * frequency / (frequency + k1 * (1 - b + b * length / average))
    return {doc_id: score for doc_id, score in scores.items() if score}
