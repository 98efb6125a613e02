"""Tests of OpenCode's forks: their parents, the shared messages, and the state at the end of a session."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.log_tail import Activity
from smart_fork.agents.opencode.log_files import OpenCodeAdapter
from smart_fork.agents.opencode.runtime import OpenCodeStarter, OpenCodeWorkerSessions
from smart_fork.agents.request_fields import Options
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.forking.family import parents
from tests.smart_fork.agents.opencode.database import COMPACTED, FAILED, FORK, FORK_AT, SAID_AGAIN, TOOLS, change, make
from tests.support.cases import parametrize_subtests


@pytest.fixture
def path():
    return make()


def test_the_parent_of_a_fork_is_told_by_what_they_share(path):
    family = AGENTS.ancestry_of("opencode").family(FORK_AT, "/work/depot", {})

    assert {TOOLS, FORK, FORK_AT} == {kin.session_id for kin in family}
    assert {FORK: TOOLS, FORK_AT: TOOLS} == parents(family, {})


def test_a_fork_shares_its_parents_turns_up_to_where_it_was_made(path):
    family = {kin.session_id: kin for kin in AGENTS.ancestry_of("opencode").family(TOOLS, "/work/depot", {})}
    reader = OpenCodeAdapter()
    above = reader.read(path / TOOLS).session

    def shared(fork):
        return AGENTS.ancestry_of("opencode").shared(
            family[fork], family[TOOLS], above, lambda: reader.read(path / fork).session
        )

    assert [9, 3] == [shared(FORK), shared(FORK_AT)]
    assert len(above.turns) == shared(FORK)


def test_a_session_that_was_answered_waits_and_one_that_failed_says_why(path):
    answered, failed = (
        AGENTS.tail_of("opencode").activity(path / TOOLS, ""),
        AGENTS.tail_of("opencode").activity(path / FAILED, ""),
    )

    assert Activity("idle", 2819, at="2026-11-23T00:07:24.611Z") == answered
    assert ("idle", "asked to fail") == (failed.status, failed.problem)


def test_a_session_whose_answer_is_not_complete_works(path):
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created", (TOOLS,)
        ).fetchall()
    data = json.loads(rows[-1][1])
    del data["time"]["completed"], data["finish"]
    change(path, "UPDATE message SET data = ? WHERE id = ?", json.dumps(data), rows[-1][0])
    assert "working" == AGENTS.tail_of("opencode").activity(path / TOOLS, "").status

    change(path, "DELETE FROM message WHERE id = ?", rows[-1][0])
    assert "working" == AGENTS.tail_of("opencode").activity(path / TOOLS, "").status


def test_what_a_fork_has_copied_says_nothing_of_what_it_does(path):
    born = OpenCodeWorkerSessions().beginning(path / FORK)
    since = utc(born.born)

    assert "idle" == AGENTS.tail_of("opencode").activity(path / FORK, since).status
    change(path, "DELETE FROM message WHERE session_id = ? AND time_created >= ?", FORK, int(born.born * 1000))
    assert Activity() == AGENTS.tail_of("opencode").activity(path / FORK, since)


def test_the_tokens_that_a_model_wrote_are_counted_from_the_start_of_a_worker(path):
    assert 49 - 7 == AGENTS.tail_of("opencode").output_tokens(path / TOOLS, "")
    assert 7 == AGENTS.tail_of("opencode").output_tokens(
        path / FORK, utc(OpenCodeWorkerSessions().beginning(path / FORK).born)
    )
    assert AGENTS.tail_of("opencode").output_tokens(path / COMPACTED, "") > 0


def test_a_birth_says_where_and_when_and_what_was_asked(path):
    birth = OpenCodeWorkerSessions().beginning(path / SAID_AGAIN)

    assert (SAID_AGAIN, None, "/work/depot", 1795392601.652) == tuple(vars_of(birth))
    assert OpenCodeWorkerSessions().was_asked(path / SAID_AGAIN, " two, differently ")
    assert not OpenCodeWorkerSessions().was_asked(path / SAID_AGAIN, "two")
    assert OpenCodeWorkerSessions().beginning(path / "ses_nobody") is None


def vars_of(birth):
    return (birth.session_id, birth.parent_id, birth.cwd, birth.born)


def request(**said) -> LaunchRequest:
    usual = {"agent": "opencode", "session_id": ""}
    return LaunchRequest(
        **{**usual, "target_cwd": Path("/work/depot"), "program": "/bin/opencode", "prompt": "do it", **said}
    )


NEW = "ses_00112233445566778899aabbcc"


@parametrize_subtests(
    ("said", "argv", "session_id", "staging", "delivery"),
    [
        ({"form": "new", "headless": True}, ["run", "--format", "json"], None, "nothing", "input"),
        ({"form": "new"}, ["--prompt=do it"], None, "nothing", "argument"),
        ({"form": "new", "prompt": ""}, [], None, "nothing", "argument"),
        ({"form": "resume", "session_id": TOOLS}, ["-s", TOOLS], TOOLS, "nothing", "typed"),
        (
            {"form": "resume", "session_id": TOOLS, "headless": True},
            ["run", "--format", "json", "-s", TOOLS], TOOLS, "nothing", "input",
        ),
        ({"session_id": TOOLS, "new_session_id": NEW}, ["-s", NEW], NEW, "branch", "typed"),
        (
            {"session_id": TOOLS, "new_session_id": NEW, "headless": True, "options": Options(skip_permissions=True), "at": "msg_1"},
            ["run", "--format", "json", "-s", NEW, "--auto"], NEW, "branch", "input",
        ),
    ],
)  # fmt: skip
def test_each_way_to_start_it_has_its_command(said, argv, session_id, staging, delivery):
    line = OpenCodeStarter().line(request(**said))

    assert ("/bin/opencode", *argv) == line.argv
    assert (session_id, staging, delivery) == (line.session_id, line.staging, line.delivery)


def test_an_id_that_we_choose_is_one_that_it_takes():
    starter = OpenCodeStarter()

    assert starter.ids.fullmatch(starter.new_id())
    assert starter.ids.fullmatch(TOOLS)
    assert starter.new_id() != starter.new_id()
    assert not starter.ids.fullmatch("ses_../../etc")
