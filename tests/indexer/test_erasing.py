"""Deleted text is in no byte of the index's files."""

from __future__ import annotations

import fcntl
import os
import zlib
from pathlib import Path

import apsw
import pytest

from indexer import kept_logs, log_changes, masking, sqlite_tools
from indexer.masking import Masked
from indexer.refresh import complete, erase_owed, read_changes
from indexer.safe_files import index_db, state_home
from indexer.session_export import export_path
from indexer.store import damage
from indexer.store.sqlite import Store
from smart_fork.agents.claude.log_files import slug
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import HashEmbedder, append, claude_log, claude_records, lines, stored_vectors
from tests.support.cases import thorough_except_first

ONE = "11111111-1111-4111-8111-111111111111"
#: Word indexes keep a word without the beginning that it shares with the one before: its end is looked for.
SECRET, GONE = "quokkazanzibar", b"zanzibar"


@pytest.fixture
def store():
    store = Store(index_db())
    yield store
    store.close()


def masking_by(patch, mask) -> None:
    """Mask all indexed text with this function."""
    patch.setattr(masking.mask_once, "_mask", mask)
    patch.setattr(masking.mask_once, "_known", {})


def everything() -> bytes:
    """Return every byte of our files. Packed states of readers are unpacked."""
    found = b"".join(path.read_bytes() for path in state_home().rglob("*") if path.is_file())
    db = apsw.Connection(str(index_db()), flags=apsw.SQLITE_OPEN_READONLY)
    states = [state for (state,) in db.execute("SELECT state FROM files") if state]
    db.close()
    return found.lower() + b"".join(_unpacked(state) for state in states).lower()


def _unpacked(state: bytes) -> bytes:
    try:
        return zlib.decompress(state, wbits=47)
    except zlib.error:
        return state


def run(store, embedder=None):
    return complete(store, READERS, embedder, patience=5)


def sessions_with(store, word: str) -> int:
    (number,) = store.sessions_with([f'"{word}"']).values()
    return number


def crowd() -> None:
    """Store so many other sessions that pages are full and word indexes have several parts."""
    for number in range(40):
        words = [" ".join(f"word{number * 7 + at * 3}x{at}" for at in range(60)) for _ in range(3)]
        claude_log(f"{number:08}-0000-4000-8000-000000000000", "/work/a", *words)


@pytest.mark.slow
def test_what_an_edited_log_says_no_more_is_in_no_byte(store):
    crowd()
    log = claude_log(ONE, "/work/a", "how are you", f"the key is {SECRET}", "and you", "fine as well")
    run(store, HashEmbedder())
    assert GONE in everything()
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    assert run(store, HashEmbedder()).erased

    assert GONE not in everything()


@pytest.mark.parametrize(
    "harm", thorough_except_first([Path.unlink, lambda path: path.write_text("something else")]), ids=["lost", "edited"]
)
@pytest.mark.slow
def test_words_are_taken_out_whatever_has_become_of_the_export(store, harm):
    crowd()
    log = claude_log(ONE, "/work/a", "how are you", f"the key is {SECRET}", "and you", "fine as well")
    run(store)
    harm(export_path("claude", ONE))
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    run(store)

    assert GONE not in everything()
    assert not list(damage.words(store.db))


@pytest.mark.slow
def test_what_a_rewind_has_thrown_away_is_in_no_byte(store):
    crowd()
    log = claude_log(ONE, "/work/a", "how are you", "fine", f"the key is {SECRET}", "I see")
    first, second = claude_records(ONE, "/work/a", ["how are you", "fine"])
    run(store)
    assert GONE in everything()
    append(log, lines(claude_records(ONE, "/work/a", ["something else", "as you like"], 2, second["uuid"])))
    report = run(store)

    assert (1, True) == (report.resumed, report.erased)
    # The log still has it, and so has what the reader keeps of the log: it may be gone back to.
    words = b"".join(path.read_bytes() for path in [index_db(), *(state_home() / "index").rglob("*.md")])
    assert GONE not in words.lower()
    assert first["uuid"] in log.read_text()


def test_a_log_that_has_grown_costs_no_erasing(store, monkeypatch):
    erased = []
    monkeypatch.setattr(Store, "erase", lambda store, _seconds=None: erased.append(store) or True)
    log = claude_log(ONE, "/work/a", "how are you", f"the key is {SECRET}")
    run(store)
    parent = claude_records(ONE, "/work/a", ["how are you", f"the key is {SECRET}"])[-1]["uuid"]
    for number in range(2, 12):
        records = claude_records(ONE, "/work/a", [f"{'more ' * 30} {number}"], number, parent)
        parent = records[-1]["uuid"]
        append(log, lines(records))
        assert 1 == run(store).read

    assert [] == erased


def named(summary: str, leaf: str) -> bytes:
    return lines([{"type": "summary", "summary": summary, "leafUuid": leaf}])


@pytest.mark.parametrize("goes", thorough_except_first(["edited", "forgotten", "rewound"]))
@pytest.mark.slow
def test_a_name_that_is_searched_and_not_shown_goes_from_every_byte(store, goes):
    crowd()
    texts = ["how are you", "fine", "and you", "fine as well", "so am I", "good"]
    log, records = claude_log(ONE, "/work/a", *texts), claude_records(ONE, "/work/a", texts)
    append(log, named(f"{SECRET} found", records[3]["uuid"]))
    run(store)
    assert ("how are you", 1) == (store.session("claude", ONE).title, sessions_with(store, SECRET))
    if goes == "edited":
        log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    elif goes == "forgotten":
        log.unlink()
        store.forget_session("claude", ONE)
    else:
        append(log, lines(claude_records(ONE, "/work/a", ["something else", "as you like"], 6, records[1]["uuid"])))
    run(store)

    assert 0 == sessions_with(store, SECRET)
    if goes != "rewound":  # the log still has it, and so has what the reader keeps of the log
        assert GONE not in everything()
    assert GONE not in index_db().read_bytes().lower()


def test_a_name_that_is_not_shown_is_masked_by_a_newer_version_where_the_log_is_deleted(store, monkeypatch):
    log = claude_log(ONE, "/work/a", "how are you", "fine", "and you", "fine as well")
    leaf = claude_records(ONE, "/work/a", ["how are you", "fine"])[1]["uuid"]
    append(log, named("deployed to postgres://app:kX7mQ2zanzibarW9pL4@db.internal/shop", leaf))
    with monkeypatch.context() as older:
        older.setattr("indexer.transcripts.texts.mask", Masked)
        run(store)
    log.unlink()
    run(store)
    store.set_meta("renewed", "older")
    assert GONE in everything()
    assert run(store).erased

    assert GONE not in everything()
    assert (1, 0) == (sessions_with(store, "deployed"), sessions_with(store, GONE.decode()))


@pytest.mark.slow
def test_what_is_masked_since_a_newer_version_is_in_no_byte(store, monkeypatch):
    crowd()
    claude_log(ONE, "/work/a", "mend the parser", f"the key is {SECRET}", f"{SECRET} it is")
    run(store)
    assert GONE in everything()
    monkeypatch.setattr(log_changes, "VERSION", "stricter")
    masking_by(monkeypatch, lambda text: Masked(text.replace(SECRET, "[REDACTED]")))
    monkeypatch.setattr(masking, "mask", lambda text: Masked(text.replace(SECRET, "[REDACTED]")))
    run(store)
    states = [path for (path,) in store.db.execute("SELECT path FROM files WHERE state <> x''")]

    assert states
    assert GONE not in everything()


@pytest.mark.thorough
def test_a_name_of_code_that_only_an_output_had_is_in_no_byte(store):
    crowd()
    records = claude_records(ONE, "/work/a", ["how are you", "fine", "and you", "fine"])
    result = {"type": "tool_result", "tool_use_id": "call1", "content": "def getQuokkaZanzibarId(): pass"}
    records[1]["message"]["content"].append(
        {"type": "tool_use", "id": "call1", "name": "Bash", "input": {"command": "ls"}}
    )
    records[2]["message"]["content"] = [result]
    log = READERS["claude"].home() / "projects" / slug("/work/a") / f"{ONE}.jsonl"
    log.write_bytes(lines(records))
    run(store)
    assert any(store.having("sessions", ['"getQuokkaZanzibarId"'], [1, 41]).values())
    log.write_bytes(log.read_bytes().replace(b"getQuokkaZanzibarId", b"getNothing"))
    run(store)

    assert GONE not in everything()


def test_a_vector_goes_with_its_passage(store):
    crowd()
    log = claude_log(ONE, "/work/a", f"the key is {SECRET}", "fine")
    embedder = HashEmbedder()
    run(store, embedder)
    (chunk,) = (row for (row,) in store.db.execute("SELECT id FROM chunks WHERE text LIKE '%quokka%'"))
    vector = dict(stored_vectors(store.db))[chunk]
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    run(store, embedder)

    assert vector not in everything()


def test_a_new_index_owes_nothing(store):
    assert not store.owes_erasing()


def test_while_somebody_reads_what_was_there_before_it_is_owed_and_done_at_the_next_occasion(store, monkeypatch):
    monkeypatch.setattr(sqlite_tools, "PATIENCE_MILLISECONDS", 10)
    log = claude_log(ONE, "/work/a", f"the key is {SECRET}", "fine")
    run(store)
    reader = apsw.Connection(str(index_db()))
    reader.execute("BEGIN; SELECT count(*) FROM chunks")
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    assert not run(store).erased
    assert GONE in everything()  # it says so
    reader.close()
    nothing_to_read, left = read_changes(store, READERS, None, 20.0)

    assert (0, [], True) == (nothing_to_read.read, left, nothing_to_read.erased)
    assert GONE not in everything()


def test_a_question_does_not_wait_for_what_would_take_long(store, monkeypatch):
    log = claude_log(ONE, "/work/a", f"the key is {SECRET}", "fine")
    run(store)
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    monkeypatch.setattr("indexer.store.sqlite.BYTES_PER_SECOND", 1)
    report, _ = read_changes(store, READERS, None, 20.0)
    assert (1, False, True) == (report.read, report.erased, store.owes_erasing())

    assert run(store).erased


def test_a_full_disk_leaves_it_owed(store, monkeypatch):
    log = claude_log(ONE, "/work/a", f"the key is {SECRET}", "fine")
    run(store)
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))

    def full(db):
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_tools, "write_transaction", full)
        assert not run(store).erased
    assert run(store).erased


def test_a_damaged_index_that_was_set_aside_goes_as_well(store):
    log = claude_log(ONE, "/work/a", f"the key is {SECRET}", "fine")
    run(store)
    aside = index_db().with_name("index.db.corrupt-20260101T000000000000Z")
    aside.write_bytes(index_db().read_bytes())
    log.write_bytes(log.read_bytes().replace(SECRET.encode(), b"nothing"))
    run(store)

    assert not aside.exists()


def test_nothing_is_erased_where_nothing_was_taken_out(store):
    claude_log(ONE, "/work/a", "how are you")
    run(store)
    before = index_db().stat().st_mtime_ns
    assert erase_owed(store)

    assert before == index_db().stat().st_mtime_ns


def test_a_copy_that_a_killed_process_had_opened_goes_and_that_of_a_living_one_stays(monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "1")
    claude_log(ONE, "/work/a", f"the key is {SECRET}")
    store = Store(index_db())
    run(store)
    left = state_home() / "kept/.reading/killed"
    with kept_logs.opened(kept_logs.find("claude", ONE)) as path:
        left.mkdir()
        (left / "log.jsonl").write_text(SECRET)
        kept_logs.sweep_reading()
        assert (True, False) == (path.exists(), left.exists())
        descriptor = os.open(path.parent, os.O_RDONLY)
        with pytest.raises(OSError, match="unavailable"):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
    store.close()

    assert [] == list((state_home() / "kept/.reading").iterdir())


def test_of_a_secret_that_only_a_tool_saw_no_piece_is_in_any_byte(store):
    secret = "aB3x-kwokkaZan_Part9+bilbyOkapi_End8"
    log = claude_log(ONE, "/work/a", "how are you", "fine")
    call = {"type": "tool_use", "id": "c1", "name": "login", "input": {"query": "log in", "password": secret}}
    output = {"type": "tool_result", "tool_use_id": "c1", "content": f"saved_name\nDB_PASSWORD={secret}\n"}
    before = claude_records(ONE, "/work/a", ["how are you", "fine"])[-1]
    for number, (kind, block) in enumerate([("assistant", call), ("user", output)]):
        record = before | {"type": kind, "uuid": f"u{number}", "parentUuid": before["uuid"]}
        before = record | {"message": {"role": kind, "content": [block]}}
        append(log, lines([before]))
    run(store)

    found = everything()
    assert b"saved_name" in found
    assert not [piece for piece in (b"kwokka", b"part9", b"bilby", b"end8") if piece in found]


@pytest.mark.parametrize("keeps", thorough_except_first(["no", "yes"]))
def test_what_is_left_of_a_deleted_log_is_masked_by_a_newer_version(store, monkeypatch, keeps):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", keeps)
    secret = "kX7mQ2zanzibarW9pL4"
    told = f"the database is postgres://app:{secret}@db.internal/shop"
    log = claude_log(ONE, "/work/a", told, "I see", "and you", "fine as well")
    with monkeypatch.context() as older:
        masking_by(older, Masked)
        older.setattr("indexer.transcripts.texts.mask", Masked)
        run(store, HashEmbedder())
    log.unlink()
    run(store, HashEmbedder())
    store.set_meta("renewed", "older")
    assert GONE in everything()
    embedder = HashEmbedder()
    assert run(store, embedder).erased

    assert GONE not in everything()
    assert [text for text in embedder.embedded if "REDACTED" in text]
    (session,) = store.find_sessions("")
    assert ("", False) == (session.path, GONE.decode() in session.title)
    export = next((state_home() / "index").rglob("*.md")).read_text()
    assert "[REDACTED:password-in-url]" in export
    assert "fine as well" in export
    assert 1 == sessions_with(store, "internal")
    assert run(store, HashEmbedder()).exported == 0


def test_a_log_that_is_deleted_before_a_newer_version_has_read_it_is_masked_as_well(store, monkeypatch):
    log = claude_log(ONE, "/work/a", "use postgres://app:kX7mQ2zanzibarW9pL4@db.internal/shop", "I see")
    with monkeypatch.context() as older:
        masking_by(older, Masked)
        older.setattr("indexer.transcripts.texts.mask", Masked)
        older.setattr(log_changes, "VERSION", "older")
        run(store)
    log.unlink()

    assert GONE in everything()
    assert run(store).erased
    assert GONE not in everything()
