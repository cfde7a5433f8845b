from dataclasses import replace

from cort.evaluation.judged import Judged
from cort.evaluation.measures import Measures
from cort.reporting.judged import judged_blocks, judged_table
from cort.reporting.tables import to_csv

MEAN = {"Judged@10": 0.74, "P@10": 0.542, "P(judged_only=True)@10": 0.6, "AP": 0.29, "AP(judged_only=True)": 0.3}
# Section 4.2.2 of the CoRT paper: 112 of 430, 2.6 of a query.
CORT = Measures("cort", "dl19", 2, 43, {"AP": 0.29}, judged=Judged(9260, 2501, 430, 112, MEAN))


def test_the_share_of_unjudged_passages_and_measures_without_them():
    [block] = judged_blocks([CORT])
    assert (block.split, block.per_query, block.measures) == ("dl19", "215", ["P@10", "MAP"])
    assert block.rows == [("cort", "26.0 %", "2.6", [("0.542", "0.600"), ("0.290", "0.300")])]


def test_splits_with_few_judgements_or_positive_ones_only_are_in_the_table_alone():
    sparse = replace(CORT, judged=Judged(60, 43, 430, 400, MEAN))
    positive = replace(CORT, judged=Judged(9260, 9260, 430, 400, MEAN))
    unknown = replace(CORT, judged=None)
    assert judged_blocks([sparse, replace(positive, split="other"), replace(unknown, split="third")]) == []
    assert to_csv(judged_table([sparse, unknown])).splitlines() == [
        "split,system,queries,judgements,relevant,results,unjudged,Judged@10,P@10,P(judged_only=True)@10,AP,AP(judged_only=True)",
        "dl19,cort,43,60,43,430,400,0.74,0.542,0.6,0.29,0.3",
    ]
