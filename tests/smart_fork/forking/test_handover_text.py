"""Tests of the text of a handover: messages and actions as lines in another agent's log."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from indexer.safe_files import state_home
from smart_fork.agents import AGENTS
from smart_fork.agents.portable_records import HomePlace, TargetSession
from smart_fork.forking import handover_text
from smart_fork.forking.handover_text import as_session, description_line, lost_of, read_neutral, utterances
from tests.indexer.transcripts.records import assistant, claude_log, read_claude, result, use, user

NEW = "22222222-2222-4222-8222-222222222222"
HERE = HomePlace("/srv/shop", "/home/ada")
TOLD = [agent.name for agent in AGENTS if agent.converter]
SHARED = [agent.name for agent in AGENTS if agent.converter]


def told(session, agent, end=None, lines=None):
    return as_session(agent, utterances(session, read_neutral(session, end).messages, lines), HERE, source_id=NEW)


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


@pytest.mark.parametrize("agent", TOLD)
def test_every_agent_reads_what_was_said_and_done_and_can_go_on_after_it(session, agent):
    with told(session, agent) as there:
        assert ["add retry", "It retries.", "and the docs", "Done."] == [
            text.text for _, text in there.messages if "Done then" not in text.text
        ]
        assert ['Done then, by another agent:\n- run pytest -q (tests passed)\n    "3 passed ⏎ in 2 s"'] == [
            text.text for _, text in there.messages if "Done then" in text.text
        ]
        assert "/srv/shop" == there.cwd
        assert len(there.turns) - 1 in there.branch_points()
    assert {"thinking": 1} == read_neutral(session).lost


def test_a_part_of_a_merge_and_a_handover_say_whose_it_is_without_its_title(session):
    assert session.title == "add retry"
    assert session.session_id in description_line(session)
    assert session.title not in description_line(session)


@pytest.mark.parametrize("agent", TOLD)
def test_it_has_the_id_of_the_session_that_it_is_from_where_that_can_be_one_of_the_agents(session, agent):
    with told(session, agent) as there:
        assert (there.session_id == NEW) == bool(AGENTS.starter_of(agent).ids.fullmatch(NEW))
        assert AGENTS.starter_of(agent).ids.fullmatch(there.session_id)


@pytest.mark.parametrize("agent", TOLD)
def test_lines_of_ours_are_nobodys_words_wherever_they_stand(session, agent):
    with told(session, agent, lines={0: "what was before", 3: "… 2 steps left out here"}) as there:
        assert ["add retry", "and the docs"] == [turn.text for turn in there.turns if turn.prompt]
        assert "left out" not in "".join(turn.text for turn in there.turns)
        assert len(there.turns) - 1 in there.branch_points()


@pytest.mark.parametrize("agent", SHARED)
def test_what_is_written_for_an_agent_could_be_shared_as_its_own(session, agent):
    with told(session, agent) as there:
        forms = AGENTS.converter_of(agent)

        assert all(forms.sent(record) is not None for record in forms.records_of(there))


@pytest.mark.parametrize("agent", TOLD)
def test_a_conversation_begins_with_a_person_whatever_an_agent_said_before(home, agent):
    log = claude_log(home, assistant("a0", None, "hello"), user("u1", "a0", "one"), assistant("a1", "u1", "done"))

    with told(read_claude(log), agent, 2) as there:
        assert ["one", "done"] == [turn.text for _, turn in there.messages]
    assert {"words before the first question": 1} == lost_of(read_neutral(read_claude(log)))


def test_an_answer_that_is_told_to_claude_is_one_that_has_ended(session):
    with told(session, "claude") as there:
        activity = AGENTS.tail_of("claude").activity(there.source_path, "")

    assert ("idle", False) == (activity.status, activity.settling)


@pytest.mark.parametrize("agent", TOLD)
def test_the_same_session_is_written_in_the_same_words(session, agent):
    said = utterances(session, read_neutral(session).messages)
    first, second = (list(AGENTS.handover_writer_of(agent).log_of(said, TargetSession(NEW, HERE))) for _ in range(2))

    assert first == second
    assert first


@pytest.mark.parametrize("agent", TOLD)
def test_times_that_are_none_and_half_characters_do_no_harm(home, agent):
    log = claude_log(home, user("u1", None, "caf\u00e9 \U0001f600 \x00 one"), assistant("a1", "u1", "done"))
    log.write_text(log.read_text().replace('"timestamp": "', '"timestamp": "no '))

    with told(read_claude(log), agent) as there:
        assert 2 == len(there.messages)


KILLED = """
import os, signal
from smart_fork.forking.handover_text import temporary_log
with temporary_log("claude", "22222222-2222-4222-8222-222222222222", [{"said": "a secret"}]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_has_left_is_in_our_private_folder_and_gone_with_the_next(session):
    ended = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert -signal.SIGKILL == ended.returncode
    folder = state_home() / "told"
    (left,) = folder.glob("told-*/*")
    assert (0o700, True) == (folder.stat().st_mode & 0o777, "a secret" in left.read_text())

    with told(session, "claude") as there:
        assert [there.source_path.parent] == list(folder.glob("told-*"))
        handover_text.delete_leftover_logs()
        assert there.source_path.is_file(), "somebody reads it"
    assert not list(folder.glob("told-*"))
