"""Tests with sessions that real people had with many versions: shared records are canonical, and stay a prefix."""

from __future__ import annotations

from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace
from smart_fork.forking.handover_text import read_neutral
from smart_fork.sharing.canonical import decode, encode
from smart_fork.team.segments import pack, unpack
from tests.support.exhaustive import full_or_sample

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("corpus")]

#: The share of the sessions that is looked at, evenly over all of them.
EVERY = full_or_sample(6, 18)


@pytest.mark.thorough  # the same of sessions that were written for it: test_segments.py
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_records_of_real_sessions_are_canonical_come_back_and_stay_a_beginning(agent, real_home, monkeypatch):
    monkeypatch.setenv("HOME", str(real_home))
    converter, seen = AGENTS.converter_of(agent), 0
    for log in sorted(READERS[agent].discover())[::EVERY]:
        session = READERS[agent].read(log.path).session
        if session is None:
            continue
        place = HomePlace(session.cwd or "/srv/nowhere", str(Path(session.cwd or "/srv/nowhere").parent))
        records = list(converter.records_of(session))
        shared = [converter.outgoing(record, place) for record in records]
        data = [encode(record) for record in shared]

        assert shared == [decode(one) for one in data]
        for record, out in zip(records, shared, strict=True):
            assert record == converter.incoming(out, place, converter.own_fields(record))
        assert data == [record for one in pack(data) for record in unpack(one.body, one.place.digest)]
        for point in session.branch_points()[-3:]:
            sooner = [encode(converter.outgoing(record, place)) for record in converter.records_of(session, point)]
            assert sooner == data[: len(sooner)]
        assert [t.text for _, t in session.messages] == [one.text for one in read_neutral(session).messages if one.text]
        seen += 1

    assert seen > full_or_sample(10, 3)
