"""``doctor --deep``: it names each fault with the next step, and writes nothing."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from indexer import log_changes
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.session_export import export_path
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.doctor import examine
from smart_fork.cli.service.instance import Address, publish
from smart_fork.doctor import Check, Checked
from smart_fork.finding.candidates import Candidates
from smart_fork.finding.index_access import opened
from smart_fork.finding.search import search
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.test_docs import assert_documented
from tests.smart_fork.world import BrokenModel, World
from tests.support.cases import thorough_except_first

TOPICS = [
    "add retry with exponential backoff to the uploader",
    "rename the company logo in every page footer",
    "migrate the invoices table to integer cents",
    "speed up parsing of large spreadsheet imports",
]


@pytest.fixture
def settled(world: World, shop) -> World:
    """Return a world with a closed index, so that everything is in the index's one file."""
    for number, topic in enumerate(TOPICS):
        (world.codex if number % 2 else world.claude)(shop, topic, f"Done, as asked: {topic}, tested and committed")
    with opened() as store:
        complete(store, READERS, world.model, patience=1)
    return world


def checked(world: World, model=None) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = {}
    for check in examine(1, model or world.model):
        assert check.ok or check.next_step, check
        found.setdefault(check.name, []).append(check)
    return found


def wrong(world: World, model=None) -> set[str]:
    return {name for name, checks in checked(world, model).items() if not all(check.ok for check in checks)}


def told(world: World, name: str) -> str:
    return " | ".join(check.detail for check in checked(world)[name] if not check.ok)


def change(sql: str, path: Path | None = None) -> None:
    """Change the index directly, past all code that would keep it right."""
    with closing(apsw.Connection(str(path or index_db()))) as db:
        db.execute(sql)


def files() -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path.home().rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_all_is_well_and_nothing_is_written(settled):
    with Registry():
        pass
    before = files()

    found = checked(settled)

    assert set() == {name for name, checks in found.items() if not all(check.ok for check in checks)}
    assert {"integrity", "workers", "references", "words", "vectors", "logs", "sample", "exports", "meaning",
            "questions", "service"} == set(found)  # fmt: skip
    assert "4 logs were read again" in found["sample"][0].detail
    assert "4 of 4 passages asked for were found by words and meaning" == found["questions"][0].detail
    assert before == files()


def test_without_an_index_there_is_nothing_to_examine(world):
    assert {"index"} == wrong(world)
    assert not index_db().exists()


def test_a_page_that_is_corrupted(settled):
    with closing(sqlite3.connect(index_db())) as db:
        size = db.execute("PRAGMA page_size").fetchone()[0]
        page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'placements_chunk'").fetchone()[0]
    with index_db().open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * 200)

    assert "integrity" in wrong(settled)
    assert "delete" in checked(settled)["integrity"][0].next_step


@pytest.mark.thorough
def test_a_file_that_is_no_database(settled):
    index_db().write_bytes(b"this is no database" * 1000)

    assert {"integrity"} == wrong(settled)


@pytest.mark.thorough
def test_a_word_index_that_is_corrupted(settled):
    change("UPDATE chunk_words_data SET block = zeroblob(length(block)) WHERE id > 10")

    assert "integrity" in wrong(settled)


def test_a_passage_that_is_deleted(settled):
    change("PRAGMA foreign_keys = OFF; DELETE FROM chunks WHERE id = (SELECT min(id) FROM chunks)")

    assert "1 rows of placements point to missing chunks" == told(settled, "references")
    assert "1 passages of part" in told(settled, "words")
    assert "1 that are no vectors of passages of its part" in told(settled, "vectors")
    assert "1 of 1 passages do not match its log" in told(settled, "sample")


@pytest.mark.thorough
def test_a_passage_on_another_line(settled):
    change("UPDATE placements SET last_line = last_line + 1 WHERE session = 1 AND position = 0")

    assert "1 of 1 passages do not match its log" in told(settled, "sample")


def test_a_passage_with_another_text(settled):
    change("UPDATE chunks SET text = 'wrong' WHERE id = 1")

    assert {"sample", "meaning"} <= wrong(settled)


@pytest.mark.thorough
def test_a_passage_of_no_session(settled):
    change("DELETE FROM placements WHERE session = 1")

    assert "1 passages belong to no session" == told(settled, "references")


def test_words_that_are_gone(settled):
    change("DELETE FROM session_words WHERE rowid = 1")

    assert {"words"} == wrong(settled)
    assert "1 sessions of part 1 are missing from the word index" == told(settled, "words")


def test_an_export_that_was_changed_and_one_that_is_missing(settled, shop):
    first, second = sorted(path for path in (state_home() / "index").rglob("*.md"))[:2]
    first.write_text(first.read_text().replace("Done", "Undone"))
    second.unlink()

    assert {"exports"} == wrong(settled)
    assert str(first) in told(settled, "exports")
    assert f"1 are missing: {second.stem}" in told(settled, "exports")


def test_what_is_left_of_a_forgotten_session(settled):
    log_changes.add_forgotten("claude", "x", "now")
    export_path("claude", "x").write_text("secret")

    assert "1 exports of forgotten sessions are still there" in told(settled, "exports")


@pytest.mark.parametrize(
    "vectors",
    thorough_except_first(
        ["substr(vectors, 1, length(vectors) - 3)", "x''", "zeroblob(length(vectors))", "vectors || vectors"]
    ),
)
def test_vectors_that_are_cut_or_overwritten(settled, vectors):
    change(f"UPDATE vectors_vector_chunks00 SET vectors = {vectors} WHERE rowid = 1")  # noqa: S608 - from above

    assert "vectors" in wrong(settled)
    assert "group 1 of vectors has" in told(settled, "vectors")


@pytest.mark.parametrize(
    ("harm", "said"),
    thorough_except_first(
        [
            ("UPDATE vectors_chunks SET validity = zeroblob(16)", "passages lack their vector"),
            ("UPDATE vectors_chunks SET rowids = zeroblob(1024)", "that are no vectors of passages of its part"),
            (
                "UPDATE vectors_rowids SET chunk_offset = chunk_offset + 1",
                "that are no vectors of passages of its part",
            ),
            ("DELETE FROM vectors_vector_chunks00", "has 0 bytes"),
            ("DELETE FROM vectors_chunks", "vectors belong to no passage"),
            ("DROP TABLE vectors_rowids", "no such table: vectors_rowids"),
        ]
    ),
)
def test_what_sqlite_vec_knows_of_them_that_is_wrong(settled, harm, said):
    change(harm)

    assert "vectors" in wrong(settled)
    assert said in told(settled, "vectors")


def test_vectors_of_other_texts(settled):
    """Such vectors have the right form: only embedding a passage again shows the fault."""
    size = settled.model.dimensions
    with closing(apsw.Connection(str(index_db()))) as db:
        stored = db.execute("SELECT vectors FROM vectors_vector_chunks00 WHERE rowid = 1").get
        first, second, rest = stored[:size], stored[size : 2 * size], stored[2 * size :]
        db.execute("UPDATE vectors_vector_chunks00 SET vectors = ? WHERE rowid = 1", (second + first + rest,))

    assert {"meaning"} == wrong(settled)
    assert "2 of 4 passages have the vector of another text" == told(settled, "meaning")


def test_a_model_that_cannot_answer_or_is_another(settled):
    assert {"meaning", "questions"} == wrong(settled, BrokenModel())
    other = type(settled.model)()
    other.model = "another"
    assert "meaning" in wrong(settled, other)


@pytest.mark.parametrize(("lost", "fails"), [(2, False), (3, True)])
def test_sessions_that_are_not_found_by_their_own_words(settled, monkeypatch, lost, fails):
    """One session may lose to others with the same text; it is a fault if most do."""
    asked = []

    def losing(store, query, embed):
        asked.append(query)
        return Candidates((), "hybrid") if len(asked) <= lost else search(store, query, embed)

    monkeypatch.setattr("smart_fork.cli.doctor.search", losing)
    checks = checked(settled)["questions"]

    assert lost == sum("is not among the first 5 for the words" in check.detail for check in checks)
    assert fails == (not Checked.of(checks).ok)


def test_logs_that_came_went_or_are_passed_over(settled, shop):
    new = settled.log_of(settled.claude(shop, "draw the map", "drawn"))
    gone = settled.log_of(next(settled.home.glob(".codex/**/*.jsonl")).stem[-36:])
    gone.unlink()

    said = told(settled, "logs")

    assert f"1 logs are not in the index yet: {new}" in said
    assert f"1 logs in the index are gone: {gone}" in said
    assert f"1 logs have no kept copy: their sessions can be found, but not forked: {gone}" in said
    assert all(check.ok or check.optional for check in checked(settled)["logs"])


def test_what_is_known_of_workers_is_damaged(settled):
    (state_home() / "workers.db").write_bytes(b"no database" * 1000)

    assert {"workers"} == wrong(settled)
    assert "workers.db" in checked(settled)["workers"][0].next_step


def test_a_service_that_is_well_or_not(settled, served):
    served.announce()
    assert set() == wrong(settled)
    served.broken = True
    assert "it does not answer a real question" in told(settled, "service")


def test_a_service_that_is_gone(settled):
    publish(Address("127.0.0.1", 1, 1, "1", ""))

    assert "does not answer there" in told(settled, "service")


@pytest.mark.slow
def test_the_command_names_its_sample_and_fails_where_something_is_wrong(run, settled):  # noqa: F811
    done = json.loads(run("doctor", "--deep", "--seed", "7", "--json").out)
    assert_documented("doctor", done)
    assert (True, 7) == (done["ok"], done["seed"])
    assert "chosen by --seed" in run("doctor", "--deep").err

    change("DELETE FROM session_words WHERE rowid = 1")
    done = run("doctor", "--deep")
    assert 1 == done.code
    assert "NO  words" in done.out
    assert 0 == run("doctor").code
