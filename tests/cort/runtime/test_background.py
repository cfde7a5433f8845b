import threading

import pytest

from cort.runtime.background import ahead, in_background


def test_items_arrive_in_order_in_a_thread_that_is_at_most_so_many_behind():
    made, waiting, places = [], [], []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    def consume(received):
        places.append(threading.current_thread())
        for number in received:
            waiting.append(len(made) - number)

    in_background(items(), consume, ahead=3)
    # One is in the maker's hand.
    assert len(waiting) == 20
    assert max(waiting) <= 3 + 2
    assert places != [threading.current_thread()]


@pytest.mark.parametrize("ahead", [1, 50])
@pytest.mark.parametrize("when", [0, 7])
def test_an_error_of_the_consumer_is_raised_and_ends_what_makes_items(ahead, when):
    made = []

    def consume(received):
        for number in received:
            if number == when:
                raise OSError("full")

    with pytest.raises(OSError, match="full"):
        in_background((made.append(number) or number for number in range(50)), consume, ahead)
    assert len(made) <= 50


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_error_of_what_makes_items_reaches_the_consumer(error):
    seen = []

    def items():
        yield 1
        raise error

    def consume(received):
        try:
            seen.extend(received)
        except error:
            seen.append(error)
            raise

    with pytest.raises(error):
        in_background(items(), consume)
    assert seen[-1] is error


def test_a_consumer_may_stop_early():
    in_background(iter(range(100)), lambda received: None)


def test_items_and_errors_of_a_thread_come_in_order():
    threads = []

    def items():
        for number in range(3):
            threads.append(threading.current_thread())
            yield number
        raise ValueError("later")

    seen = []
    with pytest.raises(ValueError, match="later"):
        for item in ahead(items(), depth=1):
            seen.append(item)
    assert seen == [0, 1, 2]
    assert threading.current_thread() not in threads
