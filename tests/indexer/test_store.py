"""The sessions, words and vectors that the index keeps, and what it deletes."""

import apsw
import pytest

from indexer.project import Project
from indexer.sqlite_tools import write_transaction
from indexer.store import queries, schema
from indexer.store.base import Reading, Scope
from indexer.store.schema import FORM
from indexer.store.sqlite import Store
from indexer.transcripts.base import Checkpoint, LogFile
from indexer.transcripts.model import BrokenLine
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import moment, reading_of, save, session_of, stored_vectors, vector_of


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "index.db")
    yield store
    store.close()


def everything(store) -> Scope:
    return store.scope(None, ("claude", "codex"), automated=True)


def embed(store, dimensions: int = 16) -> int:
    rows = store.waiting((), 1000)
    return store.add_vectors([(row, vector_of(text, dimensions).tobytes()) for row, text in rows])


def found(store, word: str) -> tuple[int, int]:
    """Return the number of chunks and of sessions with this word."""
    return tuple(
        len(store.match_words(table, [f'"{word}"'], everything(store), 100)) for table in ("chunks", "sessions")
    )


# -- form


def tables(db) -> list:
    return db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()


def test_an_index_is_private(store):
    save(store, session_of("hi"))

    modes = {file.name: file.stat().st_mode & 0o777 for file in store.path.parent.iterdir()}
    assert {"index.db": 0o600, "index.db-wal": 0o600, "index.db-shm": 0o600} == modes


def test_tables_that_could_not_all_be_made_are_made_from_the_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(schema, "_TABLES", "CREATE TABLE half(x); INSERT INTO half VALUES(1); CREATE nonsense")
    with pytest.raises(apsw.SQLError):
        Store(tmp_path / "index.db")
    monkeypatch.undo()
    store = Store(tmp_path / "index.db")

    assert (FORM,) == store.db.execute("PRAGMA user_version").fetchone()
    assert not {"half"} & {name for _, name, _ in tables(store.db)}
    store.close()


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "index.db").write_text("not a database at all" * 100)

    with pytest.raises(apsw.NotADBError):
        Store(tmp_path / "index.db")


def test_a_commit_that_fails_leaves_no_open_transaction(store):
    store.db.execute("CREATE TABLE child(parent REFERENCES chunks(id) DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(apsw.ConstraintError), write_transaction(store.db):
        store.db.execute("INSERT INTO child VALUES(99)")

    assert save(store, session_of("hi"))


# -- sessions


def test_a_session_is_read_back_as_it_was_stored(store, tmp_path):
    session = session_of("how", "so", cwd=str(tmp_path), title="A title", parent_id="p", git_branch="main")
    save(store, session)
    row = store.session("claude", "s1")

    assert (session.cwd, "A title", "p", "main", 2, 1) == (
        row.cwd,
        row.title,
        row.parent_id,
        row.git_branch,
        row.turns,
        row.prompts,
    )
    assert (session.started, session.last_activity, "/logs/s1.jsonl", "") == (
        row.started,
        row.last_activity,
        row.path,
        row.repo_root,
    )
    assert store.session("codex", "s1") is None
    assert [row] == store.find_sessions("S1") == store.family("t0") == list(store.sessions([row.row]).values())
    assert [] == store.find_sessions("s2") + store.find_sessions("_1")


def test_ids_are_found_in_either_case(store):
    save(store, session_of("hi", session_id="AbC-1"))

    assert ["AbC-1"] == [row.session_id for row in store.find_sessions("aBc")]


def test_chunks_keep_their_order_and_place(store):
    document = save(store, session_of("one " * 300, "two " * 300, "three", "four"))
    places = store.placements_of(1)
    texts = store.texts([place.chunk for place in places])

    assert [one.text for one in document.chunks] == [texts[place.chunk] for place in places]
    assert [(one.turn, one.message_id, one.exchange) for one in document.chunks] == [
        (place.turn, place.message_id, place.exchange) for place in places
    ]
    assert places == sorted(store.placements(texts), key=lambda place: place.position)


def test_each_place_knows_where_its_exchange_ends_and_what_a_fork_there_loads(store):
    session = session_of("one " * 300, "two " * 300, "x" * 40, "y" * 40)
    save(store, session)

    forks = {(place.exchange, place.ends, place.tokens) for place in store.placements_of(1)}
    assert {(0, 1, 600), (1, None, 620)} == forks
    assert session.token_estimate == 620


def test_of_a_session_that_changed_nothing_old_can_be_found(store):
    save(store, session_of("common", "answer", "obsolete"))
    store.use_model("m", 16)
    embed(store)
    save(store, session_of("common", "answer", "current"))

    assert (0, 0) == found(store, "obsolete")
    assert (1, 1) == found(store, "current") == found(store, "common")
    assert [] == store.db.execute("SELECT id FROM chunks EXCEPT SELECT chunk FROM placements").fetchall()
    assert 1 == len(stored_vectors(store.db))


def test_a_text_that_two_sessions_share_stays_while_one_has_it(store):
    save(store, session_of("shared", "beginning", "mine"))
    save(store, session_of("shared", "beginning", "yours", session_id="s2"))
    assert 3 == store.counts().chunks  # the beginning is stored once
    assert (1, 2) == found(store, "beginning")

    save(store, session_of("other", "words"))
    assert (1, 1) == found(store, "beginning")
    save(store, session_of("other", "words", session_id="s2"))
    assert (0, 0) == found(store, "beginning")


def test_a_session_that_moves_to_another_project_leaves_nothing_in_the_first(store, tmp_path):
    for name in ("here", "there"):
        (tmp_path / name / ".git").mkdir(parents=True)
        save(store, session_of("wanderer", cwd=str(tmp_path / name)))

    from indexer.project import project_of

    here, there = (store.scope(project_of(tmp_path / name), ["claude"], automated=False) for name in ("here", "there"))
    assert [] == store.match_words("chunks", ["wanderer"], here, 9) + store.match_words(
        "sessions", ["wanderer"], here, 9
    )
    assert [1, 1] == [len(store.match_words(table, ["wanderer"], there, 9)) for table in ("chunks", "sessions")]


def test_what_fails_before_it_is_visible_leaves_the_old_session(store):
    save(store, session_of("old"))

    def full():
        raise OSError("disk full")

    from indexer.pipeline import document_of

    session = session_of("new", path="/logs/s1.jsonl")
    with pytest.raises(OSError, match="disk full"):
        store.save(reading_of(session, 2000), document_of(session, READERS)[0], full)

    assert [(1, 1), (0, 0)] == [found(store, "old"), found(store, "new")]
    assert 1000 == store.seen()["/logs/s1.jsonl"].size


# -- several logs of one session (F-103)


def staged(*texts, folder: str):
    return session_of(*texts, path=f"/logs/{folder}/s1.jsonl")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 1, 2, 0, 1, 2)])
def test_of_several_logs_of_a_session_the_same_one_wins_in_any_order(store, order):
    logs = [staged("a", "b", folder="x"), staged("a", "b", "c", folder="y"), staged("a", "b", "c", folder="z")]
    for index in order:
        save(store, logs[index])

    assert "/logs/y/s1.jsonl" == store.session("claude", "s1").path  # newest activity, equal size, first path
    assert 1 == store.counts().sessions
    assert 3 == store.counts().files


def test_when_the_winner_goes_another_log_takes_its_place(store):
    old, new = staged("early", folder="x"), staged("early", "ok", "late", folder="y")
    save(store, new)
    save(store, old)
    store.forget_files(["/logs/y/s1.jsonl"])

    assert "" == store.session("claude", "s1").path
    assert (1, 1) == found(store, "late")  # findable until then
    assert (*reading_of(old).file.stamp, "1") != store.seen()["/logs/x/s1.jsonl"]
    save(store, old)
    assert "/logs/x/s1.jsonl" == store.session("claude", "s1").path
    assert (0, 0) == found(store, "late")


def test_when_the_winner_is_cut_the_better_log_is_read_again(store):
    best, second = staged("a", "b", "c", folder="x"), staged("a", "b", folder="y")
    save(store, best)
    save(store, second)
    cut = staged("cut", folder="x")
    save(store, cut)

    assert (1, 1) == found(store, "cut")
    assert (*reading_of(second).file.stamp, "1") != store.seen()["/logs/y/s1.jsonl"]
    save(store, second)
    assert ("/logs/y/s1.jsonl", (0, 0)) == (store.session("claude", "s1").path, found(store, "cut"))


def test_when_a_loser_goes_the_log_that_may_have_had_its_end_is_read_again(store):
    save(store, staged("a", "b", folder="x"))
    save(store, staged("a", folder="y"))
    store.forget_files(["/logs/y/s1.jsonl", "/logs/never/seen.jsonl"])

    assert "/logs/x/s1.jsonl" == store.session("claude", "s1").path
    assert store.seen()["/logs/x/s1.jsonl"].mtime_ns == -1


def test_a_log_that_holds_another_session_now_does_not_belong_to_the_first(store):
    save(store, session_of("first", path="/logs/x.jsonl"))
    save(store, session_of("second", session_id="s2", path="/logs/x.jsonl"))

    assert ["", "/logs/x.jsonl"] == [store.session("claude", name).path for name in ("s1", "s2")]


def test_broken_lines_are_added_up_while_a_log_grows(store):
    session = session_of("hi")
    one = (BrokenLine(session.source_path, 2, "torn"),)
    store.save(reading_of(session, broken=one), None)
    store.save(reading_of(session, 2000, broken=one, resumed=True), None)
    store.save(reading_of(session, 2000, resumed=True), None)
    assert (2, [("/logs/s1.jsonl", 2, '[[2, "torn"], [2, "torn"]]')]) == (
        store.counts().broken_lines,
        store.broken_logs(),
    )

    store.save(reading_of(session, broken=one), None)
    assert 1 == store.counts().broken_lines  # read from the start again


# -- vectors


def test_the_same_beginning_in_two_projects_is_embedded_once(store, tmp_path):
    for name in ("here", "there"):
        save(store, session_of("shared", cwd=str(tmp_path / name), session_id=name))
    store.use_model("m", 16)
    (first, *_), vector = store.waiting((), 1), vector_of("shared").tobytes()

    assert 2 == store.add_vectors([(first[0], vector)])
    save(store, session_of("shared", cwd=str(tmp_path / "third"), session_id="third"))
    assert [] == store.waiting((), 9)
    assert [1.0] * 3 == pytest.approx(
        [hit.score for hit in store.similarities([vector], everything(store)).best(9)], abs=1e-3
    )


def test_a_chunk_that_went_meanwhile_is_passed_over_and_its_number_not_given_again(store):
    store.use_model("m", 16)
    save(store, session_of("stays", "", "goes"))
    (*_, (old, text)) = store.waiting((), 9)
    save(store, session_of("stays"))
    save(store, session_of("comes", session_id="s2", root_id="other"))

    assert "User: goes" == text
    assert 0 == store.add_vectors([(old, vector_of(text).tobytes())])
    assert {"User: stays", "User: comes"} == {text for _, text in store.waiting((), 9)}


def test_another_model_starts_from_nothing(store):
    save(store, session_of("some text"))
    assert not store.use_model("one", 16)
    embed(store)
    assert not store.use_model("one", 16)
    assert 1 == store.counts().embedded

    assert store.use_model("two", 8)
    assert (0, "two", "8") == (store.counts().embedded, store.meta("model"), store.meta("dimensions"))
    assert [] == store.similarities([vector_of("x", 8).tobytes()], everything(store)).best(9)
    assert 1 == embed(store, 8)
    with pytest.raises(ValueError, match="8 dimensions, not of 16"):
        store.similarities([vector_of("x", 16).tobytes()], everything(store))


def test_without_a_model_nothing_is_near(store):
    save(store, session_of("some text"))

    assert [] == store.similarities([vector_of("x").tobytes()], everything(store)).best(9)


def talk(name: str, minutes: int, cwd: str = "/p", **facts):
    """Return a session of two exchanges with three chunks each."""
    said = [f"{name} asks {n}." if not n % 2 else f"{name} says {n}. " + "more " * 300 for n in range(4)]
    return session_of(*said, session_id=name, cwd=cwd, root_id=name, last_activity=moment(minutes), **facts)


def order(store, *first_parts: int) -> list[str]:
    """Return the waiting chunks, each by its session and its position."""
    places = {place.chunk: place for place in store.placements(row for row, _ in store.waiting(first_parts, 99))}
    names = {row.row: row.session_id for row in store.find_sessions("")}
    waiting = [places[row] for row, _ in store.waiting(first_parts, 99)]
    return [f"{names[place.session]}{place.position}" for place in waiting]


def test_what_exchanges_begin_with_waits_least_then_what_they_end_with(store):
    for name, minutes, cwd in (("a", 10, "/p"), ("c", 30, "/other"), ("b", 20, "/p")):  # not in order of time
        save(store, talk(name, minutes, cwd))
    here = store.session("claude", "a").part

    assert ["c0", "c3", "b0", "b3", "a0", "a3", "c2", "c5", "b2", "b5", "a2", "a5", "c1", "c4"] == order(store)[:14]
    assert ["b0", "b3", "a0", "a3", "c0", "c3", "b2", "b5", "a2", "a5", "c2", "c5", "b1", "b4"] == order(store, here)[
        :14
    ]
    assert store.waiting((here,), 3) == store.waiting((here,), 99)[:3]


def test_sessions_that_no_person_started_wait_behind_those_of_people(store):
    save(store, talk("run", 90, origin="automation"))
    save(store, talk("person", 10))

    assert ["person0", "person3", "run0", "run3", "person2"] == order(store)[:5]


def test_what_is_embedded_is_told_apart_from_what_waits(store):
    save(store, talk("a", 10))
    save(store, talk("b", 20, "/other"))
    here = Scope((store.session("claude", "a").part,))
    store.use_model("m", 16)

    assert ((4, 0), (2, 0), {}) == (store.first_passages(), store.first_passages(here), store.vector_counts([1, 2]))
    store.add_vectors([(row, vector_of(text).tobytes()) for row, text in store.waiting(here.parts, 3)])
    assert ((4, 3), (2, 2)) == (store.first_passages(), store.first_passages(here))
    assert {1: 2, 2: 1} == store.vector_counts([1, 2, 99])
    embed(store)
    assert ((4, 4), {1: 6, 2: 6}) == (store.first_passages(), store.vector_counts([1, 2, 99]))
    assert (0, 0) == store.first_passages(Scope())


def test_writing_a_session_takes_as_many_steps_in_a_large_index_as_in_a_small_one(store):
    def steps(name: str) -> int:
        taken = list[int]()
        store.db.trace_v2(
            apsw.SQLITE_TRACE_PROFILE, lambda event: taken.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])
        )
        save(store, session_of("one question", session_id=name))
        store.db.trace_v2(0, None)
        return sum(taken)

    save(store, session_of("one question"))
    ((part,),) = store.db.execute("SELECT id FROM parts").fetchall()
    small = steps("s2")
    store.db.executemany(
        "INSERT INTO chunks(part, hash, text) VALUES(?, ?, '')", [(part, bytes([n >> 8, n & 255])) for n in range(2000)]
    )
    assert steps("s3") < small + 1000


# -- rewritten logs and moved repositories


@pytest.mark.parametrize(
    ("size", "inode", "version", "resumed", "owes"),
    [
        (1000, 1, "1", False, False),
        (1400, 1, "1", False, False),
        (900, 1, "1", True, False),
        (900, 1, "1", False, True),
        (1000, 2, "1", False, True),
        (1000, 1, "2", False, True),
    ],
    ids=["as it was", "grown", "read on", "shorter", "another file", "another version"],
)
def test_what_a_log_had_is_erased_where_it_was_rewritten_and_not_where_it_has_grown(  # noqa: PLR0917
    store, size, inode, version, resumed, owes
):
    document = save(store, session := session_of("hi", "hello"), 1000)
    assert not store.owes_erasing()

    again = LogFile(session.agent, str(session.source_path), size, 1, inode)
    store.save(Reading(again, version, Checkpoint(size, 3, "probe", b"state"), resumed=resumed), document)

    assert owes == store.owes_erasing()


@pytest.mark.parametrize(("head", "inside"), [("abc", True), ("def", False), ("", False)])
def test_a_repository_that_moved_is_known_by_a_commit_that_is_here(store, monkeypatch, head, inside):
    save(store, session_of("hi", cwd="/old/shop"))
    monkeypatch.setattr(Project, "head_of", {"/old/shop": head}.get)
    monkeypatch.setattr(queries, "known_objects", lambda _, heads: {"abc", ""}.intersection(heads))
    monkeypatch.setattr(Project, "all_places", ())

    scope = store.scope(Project("/new/shop/.git", "/new/shop", git=True), ("claude",), automated=True)

    assert inside == bool(scope.parts)
