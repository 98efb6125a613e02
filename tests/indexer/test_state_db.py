"""The state database: whole changes or none after a kill, and nothing left of deleted data."""

from __future__ import annotations

import errno
import os
import signal
import stat
import threading
from contextlib import closing
from functools import partial
from itertools import count

import apsw
import pytest

from indexer import state_db
from indexer.errors import next_step, what_failed
from indexer.safe_files import state_home

WORD = "swordfish77zq"


def kept() -> list[str]:
    return [name for (name,) in state_db.rows("SELECT name FROM facts ORDER BY name")]


def in_a_child(work) -> int:
    """Return the exit status, or the signal, of a process that does this alone."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


def test_what_is_kept_is_read_again_replaced_and_forgotten(home):
    assert state_db.fact("answer") is None
    state_db.keep("answer", {"of": [1, "é"]})
    assert {"of": [1, "é"]} == state_db.fact("answer")

    state_db.keep("answer", 2)
    assert 2 == state_db.fact("answer")
    state_db.keep("answer", None)
    assert (None, []) == (state_db.fact("answer"), kept())


def test_looking_and_deleting_make_no_file(home):
    state_db.keep("answer", None)

    assert [] == kept()
    assert not state_home().exists()


def test_it_is_private_and_has_no_file_beside_it(home):
    state_db.keep("answer", 1)

    assert [state_db.path()] == list(state_home().iterdir())
    assert (0o600, 0o700) == tuple(stat.S_IMODE(one.stat().st_mode) for one in (state_db.path(), state_home()))


def test_of_a_change_that_fails_nothing_stays(home):
    state_db.keep("first", 1)
    with pytest.raises(state_db.StateUnavailable), state_db.changing() as db:
        db.execute("DELETE FROM facts; SELECT nothing")

    assert ["first"] == kept()


@pytest.mark.slow
def test_of_a_change_that_is_killed_all_is_there_or_nothing(home):
    """The process is killed before each statement, and at the commit."""
    seen = []
    for number in count(1):
        for name in kept():
            state_db.keep(name, None)
        state_db.keep("first", "x" * 9_000)

        ended = in_a_child(partial(take_the_place, number))

        assert kept() in (["first"], ["second", "third"])
        assert "ok" == state_db.rows("PRAGMA integrity_check")[0][0]
        seen.append(kept())
        if not ended:
            break

    assert len(seen) > 6
    assert ["second", "third"] == seen[-1]


def take_the_place(number: int) -> None:
    kill_at(number)
    with state_db.changing() as db:
        db.execute("DELETE FROM facts")
        db.execute("INSERT INTO facts VALUES ('second', ?), ('third', ?)", ("1" * 9_000, "2" * 9_000))


def kill_at(number: int) -> None:
    """Kill this process at that statement or commit."""
    seen = 0

    def passed() -> bool:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    def watch(db: apsw.Connection) -> None:
        db.exec_trace = lambda *_: not passed()
        db.set_commit_hook(passed)

    apsw.connection_hooks.append(watch)


def test_changes_of_many_threads_and_processes_all_arrive(home):
    def work(who: str) -> None:
        for number in range(10):
            state_db.keep(f"{who}{number}", number)

    child = os.fork()
    if not child:
        try:
            work("child")
        finally:
            os._exit(0)  # whatever happens: it is a copy of the whole run
    threads = [threading.Thread(target=work, args=(f"thread{one}-",)) for one in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    os.waitpid(child, 0)

    assert 50 == len(kept())


def test_of_what_was_deleted_no_byte_is_left(home):
    for number in range(300):
        state_db.keep(f"name{number}", f"{WORD} {number} " + "y" * (number * 7 % 500))
    for number in range(0, 300, 2):
        state_db.keep(f"name{number}", f"else {number}")
    state_db.change("DELETE FROM facts WHERE value LIKE '%swordfish%'")

    assert 150 == len(kept())
    assert WORD.encode() not in b"".join(one.read_bytes() for one in state_home().iterdir())


def test_a_home_that_may_only_be_read_can_be_asked(home, monkeypatch):
    state_db.keep("answer", 1)
    state_db.path().chmod(0o400)
    state_home().chmod(0o500)
    try:
        assert 1 == state_db.fact("answer")
    finally:
        state_home().chmod(0o700)


def test_a_database_of_a_newer_version_is_refused_in_a_sentence_and_left(home):
    state_db.keep("answer", 1)
    with apsw.Connection(str(state_db.path())) as db:
        db.execute("PRAGMA user_version = 99")
    before = state_db.path().read_bytes()

    for work in (lambda: state_db.fact("answer"), lambda: state_db.keep("answer", 2)):
        with pytest.raises(state_db.StateUnavailable) as caught:
            work()
        assert f"{state_db.path()}: a newer version of smart-fork has written it" == what_failed(caught.value)
        assert "update it" in next_step(caught.value)
    assert before == state_db.path().read_bytes()


def test_damage_is_told_with_the_way_to_save_the_rest(home):
    state_home().mkdir()
    state_db.path().write_bytes(b"this is no database\n" * 1000)

    with pytest.raises(state_db.StateUnavailable) as caught:
        state_db.keep("answer", 1)

    assert f"{state_db.path()}: file is not a database" == what_failed(caught.value)
    assert ".recover" in next_step(caught.value)


def test_a_full_disk_is_told_as_that_of_a_file_and_all_is_as_before(home, monkeypatch):
    state_db.keep("answer", 1)
    monkeypatch.setattr(apsw, "connection_hooks", [lambda db: db.execute("PRAGMA max_page_count = 1")])

    with pytest.raises(state_db.StateUnavailable) as caught:
        state_db.keep("answer", "z" * 100_000)

    assert errno.ENOSPC == caught.value.errno
    assert f"{state_db.path()}: {os.strerror(errno.ENOSPC)}" == what_failed(caught.value)
    monkeypatch.undo()


def test_a_database_that_another_process_holds_is_waited_for_once_and_named_as_busy(home, monkeypatch):
    state_db.keep("answer", 1)
    patience: list[int] = []

    class Seen(apsw.Connection):
        def set_busy_timeout(self, milliseconds: int) -> None:
            patience.append(milliseconds)
            super().set_busy_timeout(0)

    monkeypatch.setattr(state_db, "_impatient_until", -1.0)
    with closing(apsw.Connection(str(state_db.path()))) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(apsw, "Connection", Seen)
        for _ in range(3):
            with pytest.raises(state_db.StateUnavailable) as caught:
                state_db.fact("answer")

    assert [15_000, 150, 150] == patience
    assert f"{state_db.path()}: database is locked" == what_failed(caught.value)
    assert "Another process is writing to it; try again." == next_step(caught.value)
    assert 1 == state_db.fact("answer")
