"""A fork within a budget as the real programs take it up: the model is sent what the preview says (C-022)."""

from __future__ import annotations

import json

import pytest

from tests.e2e.agents import Machine
from tests.e2e.logs import Log
from tests.e2e.model_server import Message, Protocol
from tests.e2e.scenario import ANSWER, MORE, MORE_ANSWER, PROMPT, each_agent, heard, settled, unlike_any_other

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]


@each_agent(thorough="claude")
def test_the_model_is_sent_what_is_kept_and_a_line_for_the_rest(equipped: Machine, agent: Protocol, parent: Log):
    prompt = unlike_any_other("Now do the same for the downloader")
    before = parent.path.read_bytes()

    told = equipped.smart_fork(
        "fork", parent.session_id, prompt, "--budget", "match", "--drop", "1", "--in", "process", "--json"
    )

    fork = json.loads(told.stdout)
    settled(equipped, fork)
    said = heard(equipped, prompt).said
    own = [message for message in said if not message.text.startswith("<smart-fork-left-out>")]
    assert [Message("user", MORE), Message("assistant", MORE_ANSWER), Message("user", prompt)] == own
    (line,) = [message.text for message in said if message not in own]
    assert "1 exchange dropped here" in line
    assert f"They are in session {parent.session_id}, from message" in line
    assert PROMPT[:20] not in line
    assert ANSWER not in line
    # It is kept as the last one, too, so that how near a search finds it by then makes no difference.
    assert ["nothing", "whole"] == [one["kept"] for one in fork["selection"]["exchanges"]]
    assert before == parent.path.read_bytes()
    assert [] == equipped.model.refused


@each_agent(thorough="claude")
def test_the_model_is_sent_what_two_sessions_said_and_from_which_each_is(
    equipped: Machine, agent: Protocol, parent: Log
):
    other = unlike_any_other("Write the changelog of the uploader")
    equipped.run(equipped.programs / agent, *(("-p", "--") if agent == "claude" else ("exec", "--")), other)
    second = next(log for log in equipped.logs(agent) if other in log.path.read_text())
    prompt = unlike_any_other("Now go on with both")

    told = equipped.smart_fork(
        "fork", parent.session_id, second.session_id, prompt, "--merge", "--budget", "40k", "--in", "process", "--json"
    )

    fork = json.loads(told.stdout)
    settled(equipped, fork)
    said = [message.text for message in heard(equipped, prompt).said]
    first, then = (
        said.index(next(text for text in said if f"session {log.session_id}" in text)) for log in (parent, second)
    )
    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == said[first + 1 : then]
    assert (other, prompt) == (said[then + 1], said[-1])
    assert [second.session_id] == [one["session_id"] for one in fork["merged"]]
    assert [] == equipped.model.refused
