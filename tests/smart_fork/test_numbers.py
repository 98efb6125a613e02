"""Tests of message numbers in commands and tools."""

from __future__ import annotations

import pytest

from smart_fork.agents.log_readers import READERS
from smart_fork.errors import NotFound
from smart_fork.forking.fork_points import message_at


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_messages_are_numbered_as_a_reader_sees_them(agent, request):
    session = READERS[agent].read(request.getfixturevalue(f"{agent}_session")).session
    number, turn = session.messages[-1]

    assert turn.id == message_at(session, number)
    done = next(index for index, turn in enumerate(session.turns) if turn.tool_calls)
    assert message_at(session, done) == session.turns[done].id  # what was done there has the number in between
    for bad in (-1, 999):
        with pytest.raises(NotFound, match=f"No message {bad}"):
            message_at(session, bad)
