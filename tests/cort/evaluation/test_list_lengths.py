from cort.evaluation.comparisons import list_lengths


def test_a_list_is_long_enough_if_its_recall_equals_that_of_the_baseline():
    recall = {"bm25": [0.25, 0.5], "equal": [0.375, 0.5, 0.75], "more": [0.625], "less": [0.25, 0.375], "none": []}
    found = [(row.system, row.depth, row.recall) for row in list_lengths(recall, "bm25")]
    assert found == [("equal", 2, 0.5), ("more", 1, 0.625), ("less", None, None), ("none", None, None)]
