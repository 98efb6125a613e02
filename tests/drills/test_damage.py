"""Databases, exports and locks that are not what they should be."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import apsw
import pytest

from indexer.default_embedder import LightEmbedder
from indexer.locks import only_writer
from indexer.refresh import complete
from indexer.safe_files import index_db, index_root, state_home
from indexer.store import damage
from indexer.store.damage import DamagedIndexError, kept, open_sound, remove_older
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.status import overview
from smart_fork.errors import RegistryUnavailable
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.workers.registry import Registry
from tests.drills.drill_home import (
    Quick,
    differs,
    eventually,
    fresh,
    grow,
    records,
    serving,
    smart_fork,
    until_holds,
    untouched,
    write_logs,
)
from tests.smart_fork.searches import find
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.thorough  # of the real processes; each module has kills of its own

PAGE = 4096
PLACES = full_or_sample(40, 12)


@pytest.fixture
def indexed():
    """Logs, and their index."""
    every = write_logs()
    with closing(Store(index_db())) as store:
        complete(store, READERS, Quick(), patience=0)
    return every


def overwrite(start: int, length: int, path=None) -> None:
    path = path or index_db()
    with path.open("r+b") as file:
        file.seek(start)
        file.write(random.Random(start).randbytes(length))  # noqa: S311


def zero_length() -> None:
    index_db().write_bytes(b"")


def text() -> None:
    index_db().write_text("this is no database\n" * 1000)


def header() -> None:
    overwrite(0, 100)


def first_page() -> None:
    overwrite(100, PAGE - 100)


def every_page() -> None:
    with index_db().open("r+b") as file:  # once: it may be set aside before all are overwritten
        for start in range(2 * PAGE + 8, index_db().stat().st_size, PAGE):
            file.seek(start)
            file.write(random.Random(start).randbytes(512))  # noqa: S311


def a_foreign_log_beside_it() -> None:
    index_db().with_name("index.db-wal").write_bytes(random.Random(3).randbytes(20 * PAGE))  # noqa: S311


def a_lost_log_beside_it() -> None:
    """What the last run wrote is only in the write-ahead log, and that is gone."""
    with closing(Store(index_db())) as holding:
        holding.db.execute("PRAGMA wal_autocheckpoint = 0; BEGIN; SELECT * FROM files").fetchall()
        before = index_db().read_bytes()
        with closing(Store(index_db())) as store:
            store.db.execute("PRAGMA wal_autocheckpoint = 0; DELETE FROM placements")
    for path in index_db().parent.glob("index.db*"):
        path.unlink()
    index_db().write_bytes(before)


@pytest.mark.parametrize(
    ("harm", "set_aside"),
    [
        (zero_length, 0), (text, 1), (header, 1), (first_page, 1), (every_page, 1),
        (a_foreign_log_beside_it, 0), (a_lost_log_beside_it, 0),
    ],
)  # fmt: skip
def test_a_damaged_index_is_kept_aside_and_built_anew(indexed, harm, set_aside, tmp_path):
    """Asked while it is damaged, it answers from what is built anew, or says so and names the latest sessions."""
    grow(indexed[1], "more about harbour", "yes")  # so that there is something to write
    harm()
    with untouched():
        answers = [find(FindRequest("harbour"), Engine(Quick())).as_json() for _ in range(2)]
        complete_again()

    assert set_aside == len(kept(index_db()))
    assert [str(path) for path in kept(index_db())] == list(overview().index.set_aside)
    assert "" == differs(fresh(tmp_path / "fresh"))
    for answer in answers:
        if "error" in answer:
            assert f"kept as {kept(index_db())[0]}" in answer["message"]
            assert answer["fallback_sessions"]
    assert answers[-1]["results"]


def complete_again() -> None:
    with open_sound(index_db()) as store:
        complete(store, READERS, Quick(), patience=0)


def test_wherever_the_index_is_damaged_a_question_is_answered(indexed, monkeypatch, tmp_path):
    """By results or by the latest sessions. What is noticed is set aside."""
    monkeypatch.setattr(damage, "MAX_KEPT", 1000)
    chance, good, noticed = random.Random(11), index_db().read_bytes(), 0  # noqa: S311
    words = Quick()
    for _ in range(PLACES):
        for path in index_db().parent.glob("index.db*"):
            path.unlink()
        index_db().write_bytes(good)
        overwrite(chance.randrange(100, len(good) - 600), chance.choice([16, 64, 512]))
        before = len(kept(index_db()))
        for word in ("harbour", "retry"):
            answer = find(FindRequest(word, agent_type="both"), Engine(words)).as_json()
            assert answer.get("results") or answer.get("fallback_sessions")
        noticed += len(kept(index_db())) > before
    assert noticed > full_or_sample(1, 0)  # much of the file is room for vectors


def test_the_service_notices_damage_says_so_and_builds_the_index_anew(indexed, tmp_path):
    expected = fresh(tmp_path / "fresh", LightEmbedder())
    with untouched(), serving() as service:
        eventually(lambda: service.indexing["last_run"], "the first run")
        every_page()
        eventually(lambda: 503 == service.ask("/healthz")[0] or kept(index_db()), "the damage to be noticed")
        until_holds(expected)
        eventually(lambda: 200 == service.ask("/healthz")[0], "it to be well")
    (aside,) = kept(index_db())
    assert any(f"it is kept as {aside}" in one["message"] and "error" == one["level"] for one in records())


def test_three_damaged_indexes_an_hour_are_kept_and_then_nothing_is_built_in_vain(indexed, caplog):
    for number in range(3):
        text()
        complete_again()
        assert number + 1 == len(kept(index_db()))
    text()
    with pytest.raises(DamagedIndexError):
        complete_again()
    assert 3 == len(kept(index_db()))
    assert "is the disk of" in caplog.text


def test_of_many_damaged_indexes_the_newest_are_kept_and_none_goes_unsaid(indexed, caplog):
    for day in range(1, 6):
        index_db().with_name(f"index.db.corrupt-2025010{day}T000000000000Z").write_bytes(b"x")
    text()
    complete_again()

    assert ["20250104", "20250105"] == [path.name[17:25] for path in kept(index_db())[:2]]
    assert 3 == len(kept(index_db()))
    assert 3 == caplog.text.count("is removed")


def test_what_was_set_aside_before_a_session_was_forgotten_goes_with_it(indexed):
    """`forget` removes a session from every place."""
    text()
    complete_again()
    (aside,) = kept(index_db())
    remove_older(index_db(), "2020-01-01T00:00:00Z")
    assert aside.exists()
    assert 0 == smart_fork("forget", indexed[1].stem, "--yes").returncode
    assert [] == kept(index_db())


def test_an_index_that_somebody_else_has_replaced_already_stays(indexed):
    text()
    complete_again()
    assert damage.set_aside(index_db(), -1, ValueError("late")) == kept(index_db())[0]
    assert index_db().exists()


def test_whoever_opens_the_index_while_it_is_set_aside_waits_and_gets_the_new_one(indexed, monkeypatch):
    opened: list[int] = []

    def ask():
        with open_sound(index_db()) as store:
            opened.append(store.counts().sessions)

    late = threading.Thread(target=ask)

    def rename(path, why):
        late.start()
        late.join(0.3)  # one who does not wait comes to the old one here
        assert [] == opened
        return real(path, why)

    real = damage._rename
    monkeypatch.setattr(damage, "_rename", rename)
    aside = damage.set_aside(index_db(), index_db().stat().st_ino, ValueError("found elsewhere"))
    late.join()

    assert [0] == opened
    assert [aside] == kept(index_db())


def test_while_another_process_writes_the_damaged_index_stays_where_it_is(indexed, monkeypatch):
    monkeypatch.setattr(damage, "_PATIENCE", 0.0)
    text()
    with only_writer(0):
        answer = find(FindRequest("harbour"), Engine(Quick())).as_json()
    assert "file is not a database" in answer["message"]
    assert answer["fallback_sessions"]
    assert [] == kept(index_db())


def test_an_index_that_another_program_holds_is_waited_for_a_moment_and_said(indexed, monkeypatch, tmp_path):
    """Not for half a minute a question: the program may hold it for hours."""
    monkeypatch.setattr("indexer.store.schema.OPEN_MILLISECONDS", 100)
    db = apsw.Connection(str(index_db()))
    db.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; UPDATE meta SET value = value; COMMIT").fetchall()
    with untouched():
        answer = find(FindRequest("harbour"), Engine(Quick())).as_json()
        assert "database is locked" in answer["message"]
        assert "Another process is writing to it; try again." == answer["next_steps"][0]
        assert answer["fallback_sessions"]
        db.close()
        assert find(FindRequest("harbour"), Engine(Quick())).as_json()["results"]
    assert "" == differs(fresh(tmp_path / "fresh"))


def test_a_damaged_register_of_workers_stays_where_it_is_and_says_how_to_save_it(indexed, tmp_path):
    """It cannot be rebuilt: nothing is started beside it, and it is never replaced."""
    with Registry() as registry:
        for number in range(40):
            registry.add("claude", name=f"worker {number}", source_session_id="", place="tmux", cwd=tmp_path)
    path = state_home() / "workers.db"
    whole = path.read_bytes()
    for start, length in ((0, 100), (3 * PAGE, len(whole) - 3 * PAGE)):
        path.write_bytes(whole)
        overwrite(start, length, path)
        damaged = path.read_bytes()
        with pytest.raises(RegistryUnavailable, match="is damaged") as told, Registry() as registry:
            registry.workers()
        assert f"mv {path} {path}.damaged" in told.value.hint
        assert "is damaged" in overview().workers_problem.error
        assert find(FindRequest("harbour"), Engine(Quick())).as_json()["results"]
        status = smart_fork("status")
        assert (0, True) == (status.returncode, "The register of workers" in status.stdout)
        started = smart_fork("active", "--json")
        assert (1, True) == (started.returncode, "is damaged" in started.stdout + started.stderr)
        assert damaged == path.read_bytes()


@pytest.mark.parametrize("harm", ["deleted", "a link", "a folder"])
def test_an_export_that_is_none_is_written_again(indexed, harm, tmp_path):
    """F-147. A folder of that name is not ours to remove: the log is named, and all others are indexed."""
    export = index_root() / "claude" / f"{indexed[1].stem}.md"
    other = tmp_path / "other.md"
    other.write_text("mine")
    export.unlink()
    if harm == "a link":
        export.symlink_to(other)
    elif harm == "a folder":
        export.mkdir()
    (index_root() / "claude/foreign.md").write_text("mine")
    grow(indexed[2], "more about harbour", "yes")
    with untouched(), closing(Store(index_db())) as store:
        report = complete(store, READERS, Quick(), patience=0)

    assert ("mine", "mine") == (other.read_text(), (index_root() / "claude/foreign.md").read_text())
    if harm == "a folder":
        assert [str(indexed[1])] == list(report.failed)
        export.rmdir()
        with closing(Store(index_db())) as store:
            complete(store, READERS, Quick(), patience=0)
    (index_root() / "claude/foreign.md").unlink()
    assert "" == differs(fresh(tmp_path / "fresh"))
    assert not export.is_symlink()
