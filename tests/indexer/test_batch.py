"""Times at which changed logs are due."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.background_indexer import Batch


def test_a_log_is_due_when_it_has_been_left_alone_for_a_moment():
    batch = Batch(quiet=1, longest=10)
    batch.add(["a"], 0.0)
    batch.add(["a", "b"], 0.5)

    assert 1.5 == batch.due_at()
    assert set() == batch.take(1.4)
    assert {"a", "b"} == batch.take(1.5)
    assert (0, None, set()) == (len(batch), batch.due_at(), batch.take(99))


def test_a_log_that_is_written_to_without_pause_is_due_after_the_longest_wait():
    batch = Batch(quiet=1, longest=10)
    for tenth in range(300):
        batch.add(["busy"], tenth / 10)
        if tenth < 100:
            assert set() == batch.take(tenth / 10)

    assert {"busy"} == batch.take(10.0)


def test_a_busy_log_does_not_keep_a_quiet_one_waiting():
    batch = Batch(quiet=1, longest=10)
    batch.add(["quiet"], 0.0)
    for tenth in range(11):
        batch.add(["busy"], tenth / 10)

    assert {"quiet"} == batch.take(1.0)
    assert 1 == len(batch)
    batch.clear()
    assert batch.due_at() is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 3)), max_size=60))
def test_every_change_is_handed_over_within_the_longest_wait(changes):
    batch, now, waiting = Batch(quiet=1, longest=5), 0.0, {}
    for path, pause in changes:
        for step in range(30):
            for taken in batch.take(now + pause * step / 30):
                assert now + pause * step / 30 - waiting.pop(taken) <= 5.2
        now += pause
        batch.add([path], now)
        waiting.setdefault(path, now)

    assert set(waiting) == batch.take(now + 5)
