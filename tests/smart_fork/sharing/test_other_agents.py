"""A session as another agent's log: what was said, and what was done, in lines that any of them can read."""

from __future__ import annotations

import json

import pytest

from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.facets import copier
from smart_fork.agents.forms import Becomes, HomePlace
from smart_fork.sharing.neutral import log_of
from tests.indexer.transcripts.records import assistant, claude_log, read_claude, result, use, user

NEW = "22222222-2222-4222-8222-222222222222"
HERE = HomePlace("/srv/shop", "/home/ada")
SHARED = [agent.name for agent in AGENTS if agent.forms]


def written(home, agent, records):
    path = home / copier(agent).place(home / "log", NewSession(NEW, None, __import__("datetime").datetime.now())).name
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return READERS[agent].read(path).session


@pytest.fixture
def session(home):
    return read_claude(
        claude_log(
            home,
            user("u1", None, "add retry"),
            assistant("a1", "u1", {"type": "thinking", "thinking": "hm", "signature": "x"}, use("t", "Bash", command="pytest -q")),
            result("r1", "a1", "t", "3 passed\nin 2 s"),
            assistant("a2", "r1", "It retries."),
            user("u2", "a2", "and the docs"),
            assistant("a3", "u2", "Done."),
        )
    )  # fmt: skip


@pytest.mark.parametrize("agent", SHARED)
def test_every_agent_reads_what_was_said_and_done_and_can_go_on_after_it(home, session, agent):
    records, lost = log_of(session, 5, agent, Becomes(NEW, HERE))
    there = written(home, agent, records)

    assert ["add retry", "It retries.", "and the docs", "Done."] == [
        text.text for _, text in there.messages if "Done then" not in text.text
    ]
    assert ["Done then, by another agent:\n- run pytest -q\n    3 passed\n    in 2 s"] == [
        text.text for _, text in there.messages if "Done then" in text.text
    ]
    assert (NEW, "/srv/shop") == (there.session_id, there.cwd)
    assert len(there.turns) - 1 in there.branch_points()
    assert {"thinking": 1} == lost


@pytest.mark.parametrize("agent", SHARED)
def test_what_is_written_for_an_agent_could_be_shared_as_its_own(home, session, agent):
    from smart_fork.agents.facets import forms_of

    there = written(home, agent, log_of(session, 5, agent, Becomes(NEW, HERE))[0])
    forms = forms_of(agent)

    assert all(forms.sent(record) is not None for record in forms.records_of(there))


def test_a_conversation_begins_with_a_person_whatever_an_agent_said_before(home):
    log = claude_log(home, assistant("a0", None, "hello"), user("u1", "a0", "one"), assistant("a1", "u1", "done"))
    records, _ = log_of(read_claude(log), 2, "codex", Becomes(NEW, HERE))

    assert ["one", "done"] == [turn.text for _, turn in written(home, "codex", records).messages]


def test_the_same_session_is_written_in_the_same_words(session):
    first, second = (log_of(session, 5, "claude", Becomes(NEW, HERE))[0] for _ in range(2))

    assert first == second
