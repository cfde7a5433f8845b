import numpy as np

from cort.retrieval.impacts import as_text, impacts_of


def impacts_by_token(weights, most=None):
    tokens, impacts = impacts_of(np.array(weights), most)
    return dict(zip(tokens.tolist(), impacts.tolist(), strict=True))


def test_weights_are_rounded_to_hundredths_and_of_equal_ones_the_first_are_kept():
    assert impacts_by_token([0.0, 0.004, 0.006, 1.234]) == {2: 1, 3: 123}
    assert impacts_by_token([0.2, 0.3, 0.1, 0.2], most=2) == {0: 20, 1: 30}


def test_an_impact_is_the_number_of_times_a_token_is_written():
    assert as_text([7, 12], [2, 3]) == "7 7 12 12 12"
