"""A very long log: what is asked for is answered from its first part, and the answer says what it has not read."""

from __future__ import annotations

import json

import pytest

from indexer.transcripts import lines
from indexer.transcripts.base import UNREAD
from smart_fork import public
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.finding import conversation, session_lookup
from smart_fork.forking.lineage import lineage
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.page.export import exported
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import branched as branch
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

PROMPTS = 60


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def long(request, world: World, shop, monkeypatch) -> str:
    """A session whose log is longer than a look has time for."""
    said = [text for number in range(PROMPTS) for text in (f"prompt {number}", f"answer {number}")]
    session = getattr(world, request.param)(shop, *said)
    monkeypatch.setattr(lines, "LOOK_BYTES", world.log_of(session).stat().st_size // 3)
    monkeypatch.setattr(lines, "LOOK_SECONDS", 0.0)
    return session


def test_what_is_asked_for_is_shown_and_what_was_not_read_is_said(long):
    read = public.read(long, at=2, context=1)

    assert "prompt 1" in [one.text for one in read.messages]
    assert "of this log were read" in read.left_out
    assert "smart-fork index run" in read.left_out


def test_the_turns_of_what_is_read_are_listed_and_what_was_not_read_is_said(run, long):  # noqa: F811
    listed = json.loads(run("excise", "list", long, "--json").out)
    in_words = run("excise", "list", long)

    previews = [turn["preview"] for turn in listed["turns"] if turn["number"] is not None]
    assert "prompt 1" in previews
    assert f"prompt {PROMPTS - 1}" not in previews
    assert "of this log were read" in listed["left_out"]
    assert "of this log were read" in " ".join(in_words.err.split())


def test_a_cut_of_the_last_turns_reads_all_of_a_long_log(run, world, long):  # noqa: F811
    last = PROMPTS * 2 - 2
    planned = json.loads(run("excise", "cut", str(last), long, "--dry-run", "--json", "--force").out)

    assert planned["numbers"][0] == last


def test_a_message_behind_what_is_read_is_not_there_and_the_error_says_why(long):
    with pytest.raises(NotFound) as refused:
        public.read(long, at=5_000)

    assert "of this log were read" in refused.value.hint


def test_a_branch_up_to_a_message_has_what_is_up_to_it(world, long):
    made = branch(long, at=3)

    copy = session_lookup.read(session_lookup.locate(made.session_id))
    said = [turn.text for turn in copy.turns if turn.text]
    assert ("prompt 0", "prompt") == (said[0], said[-2].rsplit(" ", 1)[0])
    assert len(said) <= 6
    assert any("of this log were read" in one for one in made.warnings)


def test_no_part_of_a_session_passes_for_a_branch_of_all_of_it(world, long, shop):
    before = sorted(shop.parent.rglob("*"))
    with pytest.raises(ForkRefused) as refused:
        branch(long)

    assert "too long to be copied whole" in refused.value.message
    assert before == sorted(shop.parent.rglob("*"))


def test_a_fork_and_a_family_say_what_was_not_read(world, long):
    forked = fork_session(ForkRequest(long, dry_run=True))

    assert any("of this log were read" in one for one in forked.warnings)
    assert "of this log were read" in lineage(long).left_out
    assert "of this log were read" in exported(long, "markdown").left_out


def test_what_a_look_has_no_time_to_print_is_read_on_from_where_it_ended(world, shop, monkeypatch):
    session = world.claude(shop, *[text for number in range(9) for text in (f"prompt {number}", f"answer {number}")])
    monkeypatch.setattr(conversation, "ANSWER_SECONDS", 0.0)

    read = public.read(session)

    assert 1 == len(read.messages)
    assert f"--at {read.messages[0].number + 1} " in read.left_out


def test_the_index_reads_all_of_a_log_also_while_one_looks_at_it(world, long):
    found = session_lookup.locate(long)
    with lines.bounded():
        read = READERS[found.agent].read(found.path, UNREAD)

    assert (0, PROMPTS) == (read.session.unread, len(read.session.exchanges()))
    assert read.checkpoint.state


def test_a_log_that_is_read_whole_says_nothing(world, shop):
    session = world.claude(shop, "prompt", "answer")

    assert "left_out" not in public.read(session).as_json()
