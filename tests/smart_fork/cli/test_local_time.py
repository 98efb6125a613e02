"""Times for people are in the local time zone."""

from __future__ import annotations

import json
import time

import pytest


@pytest.mark.parametrize(
    ("zone", "minute"),
    [
        ("America/Los_Angeles", "2025-12-31 16:02"),
        ("Pacific/Kiritimati", "2026-01-01 14:02"),
        ("UTC", "2026-01-01 00:02"),
    ],
)
def test_times_at_a_terminal_are_those_of_its_clock_and_json_names_their_zone(  # noqa: PLR0917
    run, world, shop, monkeypatch, zone, minute
):
    session_id = world.claude(shop, "Sort the invoices by due date", "They are sorted.")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        said = {
            words[0]: run(*words).out for words in (("list",), ("show", session_id), ("find", "invoices", "--explain"))
        }
        listed = json.loads(run("list", "--json").out)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert [minute in said["list"], said["show"].count(minute) >= 2, f"{minute} · " in said["find"]] == [True] * 3
    assert "2026-01-01T00:02:00.000Z" == listed["sessions"][0]["last_modified"]
