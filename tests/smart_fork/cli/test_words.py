"""Titles and ids from logs that may stand on a command line."""

from __future__ import annotations

import pytest

from smart_fork.cli.session_ids import short
from tests.smart_fork.forks import SESSION


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("01a1fcfc-6072-7681-9874-37a43592464c", "01a1fcfc-639d-7e31-bc75-558e6995ad55"),
        ("ses_5d3cf9d10ffeVQGKxFVoQrqD9l", "ses_5d3cf9d20ffeVQGKxFVoQrqD9l"),
    ],
)
def test_short_ids_tell_sessions_of_one_minute_apart(first, second):
    assert short(first) != short(second)


def test_a_random_id_is_known_by_its_first_part():
    assert short(SESSION) == "60309e1e"
