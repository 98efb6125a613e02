"""A thread of Codex that was rewound: several rollouts, and one session."""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from indexer import kept_logs
from indexer.refresh import complete
from indexer.session_export import export_path
from smart_fork.agents import AGENTS
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import NotFound
from smart_fork.excise import Request, check, cut
from smart_fork.excise.erasure import forget
from smart_fork.excise.lookup import load_numbered, locate_transcript, numbered_turns
from smart_fork.finding import session_lookup
from smart_fork.finding.index_access import opened
from smart_fork.forking.copies import write_branch
from smart_fork.forking.lineage import lineage
from smart_fork.forking.source_sessions import restored
from smart_fork.sharing.tracking import Alias, Tracked
from tests.indexer.transcripts.records import message, meta
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.forks import NEW, write_log
from tests.smart_fork.world import WordsModel, World

#: A header and one exchange.
ONE = 3
SECRET = "ghp_" + "Ab1" * 12


def records(thread: str, shop: Path, *prompts: str, end: int = 0, **more: object) -> list:
    said = [(role, text) for one in prompts for role, text in (("user", one), ("assistant", f"Done: {one}"))]
    messages = [message(role, text, end + number) for number, (role, text) in enumerate(said, 1)]
    return [meta(thread, end, cwd=str(shop), history_mode="paginated", **more), *messages]


class Thread:
    """The rollouts of one thread in Codex's format: each continues from a record of another one."""

    def __init__(self, home: Path, shop: Path) -> None:
        self.home, self.shop, self.id = home, shop, str(uuid.uuid4())
        self.rollouts: list[tuple[str, Path]] = []

    def add(
        self, *prompts: str, base: str = "", end: int = 0, thread: str = "", folder: str = "", **more: object
    ) -> Path:
        """Write a rollout with these prompts that continues from record `end` of `base`, in this thread or in
        `thread`.
        """
        thread, rollout = thread or self.id, self.id if not self.rollouts else str(uuid.uuid4())
        name = thread if thread != self.id or not self.rollouts else f"{thread}_{rollout}"
        if base:
            more["history_base"] = {"thread_id": base, "end_ordinal_exclusive": end, "end_byte_offset": 1}
        where = self.home / ".codex" / (folder or "sessions/2026/01/02")
        path = where / f"rollout-2026-01-02T03-04-{len(self.rollouts):02}-{name}.jsonl"
        self.rollouts.append((rollout, path))
        return write_log(path, records(thread, self.shop, *prompts, end=end, **more))

    def of(self, number: int) -> str:
        return self.rollouts[number][0]


@pytest.fixture
def thread(world: World, shop: Path) -> Thread:
    """Return a thread with the prompts one, two, three; two prompts between them were taken back."""
    made = Thread(world.home, shop)
    made.add("one", "vanished")
    made.add("two", f"vanished again {SECRET}", base=made.id, end=ONE)
    made.add("three", base=made.of(1), end=2 * ONE)
    return made


def forked(thread: Thread, *prompts: str, base: str, end: int) -> str:
    child = str(uuid.uuid4())
    thread.add(*prompts, base=base, end=end, thread=child, forked_from_id=thread.id)
    return child


def asked(session_id: str) -> list[str]:
    return [turn.text for turn in session_lookup.read(session_lookup.locate(session_id)).turns if turn.prompt]


def branched(thread: Thread) -> object:
    read = session_lookup.read(session_lookup.locate(thread.id))
    new = NewSession(NEW, thread.shop, datetime(2026, 1, 3))  # noqa: DTZ001 - as Codex names its logs
    return write_branch(read, at=read.turns[-1].id, becomes=new)


def in_the_database(home: Path, session_id: str, path: Path) -> None:
    with closing(sqlite3.connect(home / ".codex/state_5.sqlite")) as db:
        db.execute("CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT NOT NULL)")
        db.execute("INSERT INTO threads VALUES (?, ?)", (session_id, str(path)))
        db.commit()


def indexed() -> str:
    """Bring the index up to date, and return all its passages as one text."""
    with opened() as store:
        complete(store, READERS, WordsModel(), patience=5)
        return " ".join(text for (text,) in store.db.execute("SELECT text FROM chunks"))


def test_it_is_one_session_with_what_was_not_taken_back(thread):
    assert [thread.id] == [CodexAdapter().id_of(file.path) for file in CodexAdapter().discover()]
    assert ["one", "two", "three"] == asked(thread.id)


def test_its_list_entry_is_called_as_it_began(thread):
    (log,) = CodexAdapter().discover()
    glanced = CodexAdapter().glance(log.path)

    assert ("one", thread.id, None) == (glanced.title, glanced.session_id, glanced.parent_id)


def test_a_rollout_s_id_is_none_of_a_session(thread):
    for rollout, _ in thread.rollouts[1:]:
        assert () == CodexAdapter().locate(rollout)
        with pytest.raises(NotFound):
            session_lookup.locate(rollout)


def test_its_fork_has_the_same_and_its_own(thread):
    child = forked(thread, "four", base=thread.of(2), end=3 * ONE)
    read = session_lookup.read(session_lookup.locate(child))

    assert ["one", "two", "three", "four"] == asked(child)
    assert (thread.id, thread.id) == (read.parent_id, read.root_id)


def test_a_fork_of_what_was_taken_back_keeps_it(thread):
    child = forked(thread, "else", base=thread.id, end=2 * ONE - 1)
    (first, second) = lineage(child).sessions

    assert ["one", "vanished", "else"] == asked(child)
    assert (thread.id, child) == (first.session_id, second.session_id)
    assert "Done: one" == second.left_parent_at.text


def test_the_family_names_no_rollout(thread):
    child = forked(thread, "four", base=thread.of(2), end=3 * ONE)
    told = lineage(child).sessions

    assert [(thread.id, None), (child, thread.id)] == [(one.session_id, one.parent) for one in told]
    assert "Done: three" == told[1].left_parent_at.text
    for command in filter(None, (one.resume_command for one in told)):
        assert not [rollout for rollout, _ in thread.rollouts[1:] if rollout in command]


def test_a_fork_that_was_rewound_into_what_it_inherited(thread):
    child = str(uuid.uuid4())
    about = {"thread": child, "forked_from_id": thread.id}
    thread.add("four", base=thread.of(2), end=3 * ONE, **about)
    path = thread.add("five", base=thread.of(1), end=2 * ONE, **about)
    path.rename(path.with_name(f"{path.stem}_{uuid.uuid4()}.jsonl"))

    assert ["one", "two", "five"] == asked(child)
    assert thread.id == session_lookup.read(session_lookup.locate(child)).parent_id


def test_the_database_decides_which_rollout_is_loaded(thread, world):
    in_the_database(world.home, thread.id, thread.rollouts[1][1])

    assert ["one", "two", f"vanished again {SECRET}"] == asked(thread.id)


def test_a_database_that_names_a_file_that_is_gone_decides_nothing(thread, world):
    in_the_database(world.home, thread.id, thread.rollouts[0][1].with_name("rollout-gone.jsonl"))

    assert ["one", "two", "three"] == asked(thread.id)


def test_an_archived_thread_is_one_session_as_well(thread, world):
    archive = world.home / ".codex/archived_sessions"
    archive.mkdir()
    for _, path in thread.rollouts:
        path.rename(archive / path.name)

    assert ["one", "two", "three"] == asked(thread.id)


@pytest.mark.parametrize("number", [0, 1])
def test_without_an_earlier_rollout_nothing_of_it_is_loaded(thread, number):
    thread.rollouts[number][1].unlink()
    read = session_lookup.read(session_lookup.locate(thread.id))

    assert (thread.id, None) == (read.session_id, read.parent_id)
    assert "three" == [turn.text for turn in read.turns if turn.prompt][-1]
    assert (len(read.turns), "gap") == read.resumed[:2]
    with pytest.raises(NotFound, match=thread.id):
        branched(thread)


def test_rollouts_that_go_on_from_each_other_are_read_to_their_end(world, shop):
    made = Thread(world.home, shop)
    made.add("one")
    made.add("two", base=made.id, end=ONE)
    write_log(
        made.rollouts[0][1],
        records(made.id, shop, "one", history_base={"thread_id": made.of(1), "end_ordinal_exclusive": ONE}),
    )

    assert "two" in asked(made.id)
    assert "gap" == session_lookup.read(session_lookup.locate(made.id)).resumed.reason


def test_a_branch_has_nothing_that_was_taken_back(thread, shop):
    made = branched(thread)

    assert "vanished" not in made.path.read_text()
    assert ["one", "two", "three"] == [
        turn.text for turn in READERS["codex"].read(made.path).session.turns if turn.prompt
    ]


def test_what_is_shared_of_it_has_nothing_that_was_taken_back(thread):
    shared = str([*AGENTS.converter_of("codex").records_of(session_lookup.read(session_lookup.locate(thread.id)))])

    assert "vanished" not in shared
    assert [True] * 3 == [word in shared for word in ("one", "two", "three")]


def test_it_is_still_known_as_what_it_was_shared_as(thread):
    shared = Tracked(aliases={"mine": Alias(platform="codex", files=(str(thread.rollouts[0][1]),))})

    assert "mine" == shared.of_log(thread.rollouts[2][1])[0]
    assert shared.of_log(thread.rollouts[2][1].with_name("rollout-else.jsonl")) is None


def test_all_its_turns_are_listed_as_its_own_for_a_cut(thread):
    turns = numbered_turns(load_numbered("codex", locate_transcript(thread.id))).turns

    assert [0, 1, 2, 3, 4, 5] == [turn.number for turn in turns if turn.number is not None]
    assert not [turn for turn in turns if turn.inherited]


@pytest.mark.usefixtures("command_model")
def test_a_rewind_takes_what_it_takes_back_out_of_the_index(world, shop):
    made = Thread(world.home, shop)
    made.add("one", "vanished")
    assert "vanished" in indexed()
    made.add("two", base=made.id, end=ONE)

    assert "vanished" not in indexed()
    export = export_path("codex", made.id).read_text()
    assert "two" in export
    assert "vanished" not in export


@pytest.mark.usefixtures("command_model")
def test_of_a_thread_that_was_taken_back_as_a_whole_nothing_is_left(world, shop):
    made = Thread(world.home, shop)
    made.add("vanished")
    assert "vanished" in indexed()
    made.add()

    assert "vanished" not in indexed()
    assert not export_path("codex", made.id).exists()
    with pytest.raises(NotFound):
        session_lookup.look_into(session_lookup.locate(made.id))


@pytest.mark.usefixtures("command_model")
def test_a_change_of_an_earlier_rollout_is_one_of_the_session(thread):
    indexed()
    (file,) = CodexAdapter().logs_of(str(thread.rollouts[0][1]))

    assert thread.rollouts[2][1] == file.path


@pytest.mark.usefixtures("command_model")
def test_a_forgotten_thread_stays_forgotten_with_all_its_rollouts(thread):
    indexed()
    assert forget(thread.id).erased

    assert "one" not in indexed().split()
    assert not export_path("codex", thread.id).exists()


@pytest.mark.usefixtures("command_model")
def test_the_copy_that_is_kept_is_whole(thread, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    indexed()
    for _, path in thread.rollouts:
        path.unlink()
    found = session_lookup.locate(thread.id)

    assert found.path is None
    assert ["one", "two", "three"] == [turn.text for turn in session_lookup.look_into(found).turns if turn.prompt]
    with restored(found):
        assert ["one", "two", "three"] == asked(thread.id)
    assert kept_logs.find("codex", thread.id) is not None


@pytest.mark.usefixtures("command_model")
def test_a_copy_that_is_kept_is_not_made_again_but_after_a_cut(thread, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    indexed()
    before = kept_logs.find("codex", thread.id)
    indexed()
    assert before == kept_logs.find("codex", thread.id)

    cut(Request(thread.id, ids=[turn_of(thread, "two"), turn_of(thread, "Done: two")]))

    with kept_logs.opened(kept_logs.find("codex", thread.id)) as path:
        assert "two" not in path.read_text()


def turn_of(thread: Thread, words: str) -> str:
    read = session_lookup.read(session_lookup.locate(thread.id))
    return next(turn.id for turn in read.turns if turn.text == words)


@pytest.mark.usefixtures("command_model")
def test_what_stands_in_an_earlier_rollout_is_cut_there(thread):
    indexed()
    outcome = cut(Request(thread.id, ids=[turn_of(thread, "two"), turn_of(thread, "Done: two")]))

    assert [str(thread.rollouts[1][1])] == [one["path"] for one in outcome["followed"]]
    assert "two" not in thread.rollouts[1][1].read_text()
    assert ["one", "three"] == asked(thread.id)
    assert "two" not in indexed().split()


@pytest.mark.usefixtures("command_model")
@pytest.mark.slow
def test_a_secret_that_was_taken_back_is_masked(thread):
    indexed()
    outcome = cut(Request(thread.id, secrets=True))

    assert outcome["masked"]
    assert not [path for _, path in thread.rollouts if SECRET in path.read_text()]
    assert check(thread.id)["ok"]


@pytest.mark.usefixtures("command_model")
def test_what_was_cut_is_still_found_where_it_was_taken_back(world, shop):
    made = Thread(world.home, shop)
    made.add("one", "the passphrase is xyzzy-9931")
    made.add("the passphrase was xyzzy-9931", base=made.id, end=ONE)
    indexed()
    said = "the passphrase was xyzzy-9931"
    outcome = cut(Request(made.id, ids=[turn_of(made, said), turn_of(made, f"Done: {said}")]))

    assert str(made.rollouts[0][1]) in [one["path"] for one in outcome["left"]]
    assert not check(made.id)["ok"]


@pytest.mark.slow
def test_no_front_says_anything_that_was_taken_back(thread, run):  # noqa: F811
    child = forked(thread, "four", base=thread.of(2), end=3 * ONE)
    run("index", "run")
    for command in (
        ["list", "--json"],
        ["find", "vanished", "--json"],
        ["show", thread.id, "--json"],
        ["show", child, "--json"],
        ["lineage", thread.id, "--json"],
        ["export", thread.id, "--markdown"],
        ["export", child, "--html"],
    ):
        ran = run(*command)
        said = ran.out + ran.err
        assert "one" in said, command
        assert "vanished" not in said.replace('"vanished"', ""), command
        assert thread.of(1) not in said, command
    numbered_turns = json.loads(run("list", "--json").out)["sessions"]
    assert {thread.id, child} == {one["session_id"] for one in numbered_turns}
