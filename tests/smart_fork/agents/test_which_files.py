"""The files of one session: names, links, several logs with one id, several homes, compressed rollouts."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import zstandard

from indexer.refresh import complete
from indexer.safe_files import index_db, open_regular
from indexer.store.sqlite import Store
from indexer.transcripts.base import UNREAD, is_name
from smart_fork.agents import AGENTS
from smart_fork.agents.codex.log_files import threads
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.log_tail import TAIL_BYTES, backwards
from smart_fork.finding.recent import odd
from tests.indexer.transcripts.records import (
    ASKED,
    FIXTURES,
    READ_LOGS,
    chained,
    claude_log,
    codex_log,
    copilot_log,
    enveloped,
    happened,
    id_of,
    in_a_row,
    lay_out,
    linked,
    made_database,
    message,
    meta,
    qwen_log,
    user,
    write,
)

ONE, TWO = id_of(1), id_of(2)
LATER, AHEAD = {"timestamp": "2026-07-01T11:00:00.000Z"}, {"timestamp": "2131-01-01T00:00:00.000Z"}
ROLLOUT = f"rollout-2026-11-20T09-00-00-{ONE}"


@pytest.mark.parametrize("name", [ONE, ROLLOUT, f"{ROLLOUT}_{TWO}", f"session-2026-11-20T09-00-{ONE}", f"T-{ONE}", f"2026-11-20T09-00-00Z_{ONE}", "named-by-hand"])  # fmt: skip
def test_a_log_is_named_after_its_session(name):
    assert is_name(name)


@pytest.mark.parametrize(
    "left",
    [
        "{} (conflicted copy)", "{} (Nia's conflicted copy 2026-11-20)", "{}.sync-conflict-20261120-101010-ABCDEFG", "{}~",
        "{}.bak", "{} copy 2", "{} 2", "{}(1)", "{}-DESKTOP-A1B2C3D", "#{}", ".#{}", "._{}", "{}_conf(1)", "Copy of {}",
        "backup-{}", "{}.orig", "{}_2", "{}-{}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", [ONE, ROLLOUT, f"session-2026-11-20T09-00-{ONE}", f"T-{ONE}"])
def test_what_sync_and_backup_programs_leave_beside_a_log_is_no_session(left, name):
    assert not is_name(left.format(name, ONE))


def test_copies_beside_a_log_are_neither_listed_nor_located(home):
    log = claude_log(home, user("u1", None, "add retry"), session=ONE)
    for left in (f"{ONE} 2.jsonl", f"{ONE}.sync-conflict-1.jsonl", f"{TWO} (conflicted copy).jsonl"):
        shutil.copyfile(log, log.with_name(left))

    assert [log] == [file.path for file in READERS["claude"].discover()]
    assert not any(READERS["claude"].log_at(str(one)) for one in log.parent.iterdir() if one != log)
    assert ((log,), ()) == (READERS["claude"].locate(ONE), READERS["claude"].locate(TWO))


def test_a_linked_year_of_rollouts_and_a_linked_project_are_read_once_and_what_is_passed_over_is_said(home, tmp_path):
    log = codex_log(home, ONE, meta(ONE), message("user", "add retry"))
    year = log.parents[2]
    away = tmp_path / "disk" / year.name
    away.parent.mkdir()
    shutil.move(year, away)
    year.symlink_to(away)
    (year.parent / "again").symlink_to(away)
    (away / "circle").symlink_to(year.parent)
    (year.parent / "gone").symlink_to(tmp_path / "nowhere")

    reader = READERS["codex"]
    assert [log] == [file.path for file in reader.discover()]
    assert log == reader.log_at(str(log)).path
    assert reader.log_at(str(log).replace(f"/{year.name}/", "/again/", 1)) is None
    passed = {Path(one.path).name: one.reason for one in odd([reader])}
    assert {"again", "circle", "gone"} <= passed.keys()


def archive(log: Path, data: bytes | None = None) -> Path:
    made = log.with_name(f"{log.name}.zst")
    made.write_bytes(zstandard.compress(log.read_bytes() if data is None else data))
    return made


def test_a_rollout_that_codex_has_compressed_is_the_same_session(home):
    log = codex_log(home, ONE, meta(ONE), message("user", "add retry"), message("assistant", "added"))
    reader = READERS["codex"]
    plain = reader.read(log).session
    packed = archive(log)

    assert [log] == [file.path for file in reader.discover()]  # both are there for a moment: the plain one counts
    log.unlink()
    assert ([packed], (packed,)) == ([file.path for file in reader.discover()], reader.locate(ONE))
    again, listed = reader.read(packed, UNREAD).session, reader.glance(packed)
    assert (ONE, [turn.text for turn in plain.turns]) == (again.session_id, [turn.text for turn in again.turns])
    assert plain.title == listed.title
    with reader.as_file(packed) as whole:
        assert (log.name, b"add retry" in whole.read_bytes()) == (whole.name, True)


def test_hostile_archives_are_bounded(home, monkeypatch):
    log = codex_log(home, ONE, meta(ONE), message("user", "add retry"))
    packed = archive(log, b"\n" * (4 << 20))
    monkeypatch.setattr("indexer.safe_files._MAX_UNPACKED_BYTES", 1 << 20)
    with open_regular(packed) as file, pytest.raises(OSError, match="more than 1 MB"):
        file.read()
    packed.write_bytes(b"no archive")
    with open_regular(packed) as file, pytest.raises(OSError, match="damaged"):
        file.read()
    packed.write_bytes(zstandard.compress(b"abc" * 1000))
    with open_regular(packed) as file:
        assert (3000, b"bc", b"abc") == (file.seek(0, os.SEEK_END), (file.seek(-2, os.SEEK_END), file.read())[1], (file.seek(0), file.read(3))[1])  # fmt: skip


def database(home: Path, rows: list[tuple[object, ...]], table: str = "TABLE threads") -> Path:
    path = home / ".codex/state_5.sqlite"
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE {table} (id, rollout_path, name, title, first_user_message, preview)")
        db.executemany("INSERT INTO threads VALUES (?, '', ?, ?, ?, '')", rows)
    return path


def test_names_of_codex_are_unknown_where_its_folder_may_not_be_looked_into(monkeypatch):
    """A team's server reads sessions as a user who may not read the folder of another user."""

    def closed(*_: object) -> object:
        raise PermissionError("closed")

    monkeypatch.setattr(Path, "glob", closed)

    assert {} == threads(Path("closed"))


@pytest.mark.parametrize(
    ("row", "title"),
    [
        (("Retries", "add retry", "add retry"), "Retries"),
        ((None, "Retries by hand", "add retry"), "Retries by hand"),
        ((None, "add retry", "add retry to it"), "add retry"),
        ((b"\xff", 7, None), "add retry"),
    ],
)
def test_a_name_in_the_database_of_codex_is_the_title_and_what_it_shows_for_one_is_none(home, row, title):
    path = database(home, [(ONE, *row)])
    before = {one.name: one.read_bytes() for one in path.parent.glob("state*")}

    session = READERS["codex"].read(codex_log(home, ONE, meta(ONE), message("user", "add retry"))).session

    assert title == session.title
    assert before == {one.name: one.read_bytes() for one in path.parent.glob("state*")}


def moved(log: Path, folder: str, *more: object) -> Path:
    copy = log.parent.parent / folder / log.name
    copy.parent.mkdir()
    lines = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in more)
    copy.write_text(log.read_text() + lines)
    return copy


def test_of_one_id_in_two_folders_the_longest_history_counts(home):
    log = claude_log(home, user("u1", None, "add retry"), session=ONE)
    copy = moved(log, "-elsewhere", user("u2", "u1", "and more") | LATER)
    reader = READERS["claude"]

    assert [copy, log] == READERS.latest_first(reader, ONE, reader.locate(ONE))
    session = reader.read(copy).session
    assert (["add retry", "and more"], "") == ([turn.text for turn in session.turns], session.resumed.reason)


@pytest.mark.parametrize(
    ("more", "wins"),
    [
        ([user("u2", "u1", "and more") | LATER], True),
        (
            [user("u2", "u1", "and more") | LATER, *(chained("progress", f"p{n}", "u2") | LATER for n in range(300))],
            True,
        ),
        (
            [user("u2", "u1", "and more") | LATER, *(chained("progress", f"p{n}", "u2") | AHEAD for n in range(300))],
            True,
        ),
        ([user("u2", "u1", "by a clock that is wrong") | AHEAD], False),
        ([{"type": "custom-title", "customTitle": "x", "sessionId": ONE} | LATER], False),
        ([user("u2", "u1", "torn") | LATER, '{"type": "user", "timestamp": "2031-'], True),
        ([], False),
    ],
    ids=["said", "progress", "progress ahead", "ahead", "named", "torn", "equal"],
)
def test_the_log_counts_in_which_something_was_last_said_or_done(home, more, wins):
    """A record with a wrong clock does not decide it, nor does a record that is no activity."""
    log = claude_log(home, user("u1", None, "add retry"), session=ONE)
    copy = moved(log, "-elsewhere", *more)
    reader = READERS["claude"]

    assert ([copy, log] if wins else [log, copy]) == READERS.latest_first(reader, ONE, reader.locate(ONE))
    assert (LATER["timestamp"] if wins else "2026-07-01T10:00:00.000Z") == reader.time_of(reader.log_at(str(copy)))


def test_of_two_rollouts_of_a_thread_the_one_with_the_last_record_counts(home):
    """The time in its name is later, and the record's time is in the envelope."""
    log = codex_log(home, ONE, meta(ONE), message("user", "add retry"))
    copy = home / ".codex/archived_sessions" / log.name
    copy.parent.mkdir()
    copy.write_text(log.read_text() + json.dumps(message("user", "and more") | LATER) + "\n")
    reader = READERS["codex"]

    assert copy == READERS.latest_first(reader, ONE, reader.locate(ONE))[0]


def test_where_both_went_on_both_ends_are_there_and_said(home):
    log = claude_log(home, user("u1", None, "add retry"), session=ONE)
    copy = moved(log, "-elsewhere", user("v2", "u1", "in the worktree") | LATER)
    with log.open("a") as file:
        file.write(json.dumps(user("u2", "u1", "in the original")) + "\n")

    session = READERS["claude"].read(copy).session
    assert ["add retry", "in the original", "in the worktree"] == [turn.text for turn in session.turns]
    assert (2, "elsewhere") == session.resumed[:2]


def test_further_homes_are_named_by_a_list_or_in_config_and_a_session_knows_its_own(home, monkeypatch):
    log = claude_log(home, user("u1", None, "add retry"), session=ONE)
    work = home / ".claude-work"
    other = work / log.relative_to(home / ".claude").with_name(f"{TWO}.jsonl")
    other.parent.mkdir(parents=True)
    shutil.copyfile(log, other)
    own = AGENTS["claude"].home
    assert [log] == [file.path for file in READERS["claude"].discover()]

    settings = home / ".smart-fork/config.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text('homes = ["CLAUDE_CONFIG_DIR=~/.claude-work"]\n')
    assert {log, other} == {file.path for file in READERS["claude"].discover()}
    assert (work, True, False) == (own.of(other), own.is_further(other), own.is_further(log))
    with own.used(other):
        assert ({"CLAUDE_CONFIG_DIR": str(work)}, work) == (own.environment(), own.folder())
    assert {} == own.environment()

    settings.unlink()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", f"{home}/.claude, {work}")
    assert {log, other} == {file.path for file in READERS["claude"].discover()}
    with own.used(log):
        assert {"CLAUDE_CONFIG_DIR": f"{home}/.claude"} == own.environment()


def two_ends(home: Path, agent: str) -> tuple[Path, Path]:
    """Write two logs of one session in two folders of an agent, with different last records."""
    if agent == "qwen":
        began = linked("user", "a", None, "add retry"), linked("assistant", "b", "a", "Retries are there.")
        log = qwen_log(home, *began, linked("user", "c", "b", "in the original"))
        copy = qwen_log(home, *began, linked("user", "d", "b", "in the worktree", **LATER), cwd="/srv/shop/tree")
        return log, copy
    if agent == "copilot":
        began = happened("user.message", "a", content="add retry"), happened("assistant.message", "b", content="Done.")
        log = copilot_log(home, *in_a_row(*began, happened("user.message", "c", content="in the original")))
        later = in_a_row(*began, happened("user.message", "d", content="in the worktree") | LATER)
        settings = home / ".smart-fork/config.toml"
        settings.parent.mkdir()
        settings.write_text('homes = ["COPILOT_HOME=~/.copilot-work"]\n')
        copy = home / ".copilot-work" / log.relative_to(home / ".copilot")
        return log, write(copy, *later)
    (log,) = lay_out(agent)
    records = [json.loads(line) for line in log.read_text().splitlines()]
    said = [one for one in records if (one.get("message") or {}).get("role") in ("user", "assistant")]
    last = {"id": "own", "parentId": said[-1]["id"], "timestamp": LATER["timestamp"]}
    ends = [
        json.loads(
            json.dumps(
                said[0] | last | {"message": {"role": "user", "content": [{"type": "text", "text": "in the {}"}]}}
            )
            .replace("{}", where)
            .replace('"own"', f'"{where}"')
        )
        for where in ("original", "worktree")
    ]
    copy = log.parent.parent / "-another" / log.name
    write(copy, *records, ends[1] | {"timestamp": "2026-11-28T11:00:00.000Z"})
    return write(log, *records, ends[0]), copy


@pytest.mark.parametrize("agent", ["qwen", "copilot", "droid", "pi"])
def test_both_ends_of_a_session_in_two_folders_are_there_for_other_agents_too(home, agent):
    log, copy = two_ends(home, agent)
    reader = READERS[agent]
    session_id = reader.id_of(log)

    assert copy == READERS.latest_first(reader, session_id, reader.locate(session_id))[0]
    session = reader.read(copy).session
    *_, theirs, ours = [turn.text for turn in session.turns if turn.prompt]
    assert ("in the original", "in the worktree") == (theirs, ours)
    assert (len(session.turns) - 1, "elsewhere") == session.resumed[:2]
    assert {log, copy} == {file.path for file in reader.logs_of(str(log))}
    alone = reader.read(log).session
    assert [turn.text for turn in alone.turns if turn.prompt][-2:] == ["in the worktree", "in the original"]


def test_a_log_in_two_folders_that_went_on_in_one_has_one_end(home):
    log, copy = two_ends(home, "qwen")
    shutil.copyfile(copy, log)

    assert "" == READERS["qwen"].read(copy).session.resumed.reason


def laid_out(home: Path, agent: str) -> None:
    """Write a session of this agent into its own folder."""
    if agent == "opencode":
        file = home / ".local/share/opencode/opencode.db"
        file.parent.mkdir(parents=True)
        made_database(FIXTURES / "opencode/sessions.sql", file)
    elif agent in READ_LOGS:
        lay_out(agent)
    else:
        ASKED[agent](home, "add retry")


@pytest.mark.parametrize("agent", list(AGENTS), ids=lambda agent: agent.name)
def test_sessions_of_each_agent_are_found_in_a_further_home_which_they_know(home, agent):
    laid_out(home, agent.name)
    own, reader, value = agent.home, READERS[agent.name], home / "work account"
    found = {str(file.path.relative_to(own.folder())) for file in reader.discover()}
    further = value / own.inside
    further.parent.mkdir(exist_ok=True)
    shutil.move(own.folder(), further)
    assert (found != set(), []) == (True, list(reader.discover()))

    settings = home / ".smart-fork/config.toml"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(f'homes = ["{own.variable}={value}"]\n')
    log, *more = [file.path for file in reader.discover()]

    assert {str(one.relative_to(further)) for one in (log, *more)} == found
    assert (log,) == reader.locate(reader.id_of(log))
    assert str(log) == reader.log_at(str(log)).location
    assert (further, True) == (own.of(log), own.is_further(log))
    with own.used(log):
        others = {one.name: one.home.folder() for one in AGENTS if one is not agent}
        assert ({own.variable: str(value)}, further) == (own.environment(), reader.home())
    assert others == {one.name: one.home.folder() for one in AGENTS if one is not agent}


def test_a_home_within_another_is_that_of_its_sessions(home):
    settings = home / ".smart-fork/config.toml"
    settings.parent.mkdir()
    settings.write_text('homes = ["CODEX_HOME=~/.codex/accounts/work"]\n')

    own = AGENTS["codex"].home
    assert home / ".codex/accounts/work" == own.of(home / ".codex/accounts/work/sessions/2026/07/01/rollout-x.jsonl")


def test_a_list_reads_on_until_it_knows_what_was_asked(home):
    asides = [
        {"type": "file-history-snapshot", "messageId": str(n), "snapshot": {"long": "x" * 9000}} for n in range(90)
    ]
    log = claude_log(home, *asides, user("u1", None, "add retry"), session=ONE)
    long = codex_log(home, TWO, meta(TWO, base_instructions={"text": "x" * 600_000}), enveloped("turn_context"), message("user", "drop it"))  # fmt: skip

    assert ["add retry", "drop it"] == [READERS["claude"].glance(log).title, READERS["codex"].glance(long).title]


def test_what_an_older_version_took_for_a_session_is_forgotten(home, monkeypatch):
    log = claude_log(home, user("u1", None, "add retry"), session=ONE)
    left = log.with_name(f"{TWO} (conflicted copy).jsonl")
    left.write_text(log.read_text().replace(ONE, TWO).replace("u1", "v1"))
    store = Store(index_db())
    with monkeypatch.context() as older:
        older.setattr("indexer.transcripts.base.is_name", lambda _: True)
        complete(store, READERS, None, patience=1)
    assert store.counts().sessions == 2

    complete(store, READERS, None, patience=1)
    assert (1, True) == (store.counts().sessions, store.session("claude", ONE) is not None)
    store.close()


def test_the_end_of_a_compressed_log_is_that_of_what_it_was(tmp_path):
    """The size of the compressed file does not tell where the log ends."""
    log = tmp_path / "one.jsonl.zst"
    log.write_bytes(zstandard.compress(b"".join(b'{"number": %d}\n' % number for number in range(TAIL_BYTES // 8))))

    assert {"number": TAIL_BYTES // 8 - 1} == next(backwards(log))


def test_the_end_of_a_log_with_a_hole_is_read_behind_it_and_before_it(tmp_path):
    """A crash leaves NULs in a file, and the agent continues after them."""
    log = tmp_path / "one.jsonl"
    log.write_bytes(b'{"number": 1}\n' + bytes(100_000) + b'{"number": 2}\n{"number": 3}\n')

    assert [3, 2, 1] == [one["number"] for one in backwards(log)]
