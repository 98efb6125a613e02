"""After a cut, no search finds the cut text: not in the session, its copies and branches, nor in their index."""

from __future__ import annotations

import json
import shutil
import uuid
from contextlib import nullcontext
from dataclasses import replace

import pytest

from indexer import kept_logs
from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.session_export import export_path
from indexer.store import damage
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.excise import Request, check, cut, erasure, rollback
from smart_fork.finding.index_access import opened
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model  # noqa: F401 - a fixture
from tests.smart_fork.forks import codex_path, codex_records, write_log
from tests.smart_fork.world import WordsModel, World
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.usefixtures("command_model")
SAID = ("add retry to the uploader", "retries are there", "the passphrase is swordfish", "I will remember swordfish")


def indexed() -> None:
    with opened() as store:
        complete(store, READERS, WordsModel(), patience=5)


def everything_indexed() -> str:
    """Return all texts in the index."""
    with opened() as store:
        chunks = [text for (text,) in store.db.execute("SELECT text FROM chunks")]
        words = [
            row
            for (row,) in store.db.execute("SELECT count(*) FROM session_words WHERE session_words MATCH 'swordfish'")
        ]
        words += [
            row for (row,) in store.db.execute("SELECT count(*) FROM chunk_words WHERE chunk_words MATCH 'swordfish'")
        ]
        vectors = store.counts().embedded, store.counts().chunks
    assert vectors[0] == vectors[1]
    return " ".join(chunks) + ("swordfish" if any(words) else "")


def turn_ids(path, *words: str) -> list[str]:
    found = [json.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    return [
        str(record.get("uuid") or record.get("ordinal"))
        for record in found
        if any(word in json.dumps(record) for word in words)
    ]


def test_a_search_for_what_was_cut_from_a_claude_session_finds_nothing(world: World, shop):
    session_id = world.claude(shop, *SAID)
    log = world.log_of(session_id)
    indexed()
    assert "swordfish" in everything_indexed()
    assert "swordfish" in export_path("claude", session_id).read_text()

    outcome = cut(Request(session_id, ids=turn_ids(log, "swordfish")))

    assert outcome["index"] == {"updated": True, "read": 1, "erased": True, "note": ""}
    assert "swordfish" not in everything_indexed()
    assert "swordfish" not in export_path("claude", session_id).read_text()
    assert [session_id] == world.ids("retry to the uploader", shop)
    assert check(session_id)["ok"]
    rollback(outcome["snapshot"])
    assert "swordfish" in everything_indexed()


@pytest.mark.thorough
def test_a_search_for_what_was_cut_from_a_codex_session_finds_nothing_though_the_file_is_as_long_as_before(
    world: World, shop
):
    session_id = str(uuid.uuid4())
    path = write_log(
        codex_path(world.home, session_id),
        codex_records(session_id, shop, [f"task {n} {'x ' * 900}" for n in range(9)]),
    )
    text = path.read_text().replace("task 4", "swordfish")
    path.write_text(text)
    indexed()
    assert "swordfish" in everything_indexed()

    cut(Request(session_id, ids=turn_ids(path, "swordfish")))

    assert "swordfish" not in everything_indexed()
    assert "swordfish" not in path.read_text()
    assert check(session_id)["ok"]


def kept_text(session_id: str) -> str:
    copy = kept_logs.find("claude", session_id)
    with kept_logs.opened(copy) as path:
        return path.read_text()


@pytest.mark.parametrize("still_wanted", thorough_except_first(["true", "false"]))
def test_the_copy_that_was_kept_of_a_session_loses_what_was_cut(world: World, shop, monkeypatch, still_wanted):
    """Also if copies are no longer kept."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    session_id = world.claude(shop, *SAID)
    log = world.log_of(session_id)
    indexed()
    assert "swordfish" in kept_text(session_id)
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", still_wanted)

    cut(Request(session_id, ids=turn_ids(log, "swordfish")))

    assert log.read_text() == kept_text(session_id)
    assert check(session_id)["ok"]


def test_verify_looks_into_the_copy_that_was_kept(world: World, shop, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    session_id = world.claude(shop, *SAID)
    indexed()

    cut(Request(session_id, ids=turn_ids(world.log_of(session_id), "swordfish"), follow=False))

    assert "swordfish" in check(session_id)["words_found"]


@pytest.mark.thorough
def test_words_that_are_parts_or_forms_of_words_that_stay_are_not_said_to_be_found(world: World, shop):
    """The index finds "raise" in "raises", and "status" is a part of "status_code"."""
    said = [
        "> why does it fail",
        "send raises on any status, its code",
        "> may it raise its status_code swordfish",
        "yes",
        "> go on",
        "done",
    ]
    session_id = world.claude(shop, *said)
    indexed()

    cut(Request(session_id, ids=turn_ids(world.log_of(session_id), "swordfish")))

    found = check(session_id)
    assert ([], [], [], True) == (found["words_found"], found["copies"], found["remains"], found["ok"])


@pytest.mark.slow
def test_the_index_reads_a_log_anew_that_was_replaced_by_one_of_the_same_length(world: World, shop):
    """After a cut by any program, even if the index could not be opened then."""
    session_id = str(uuid.uuid4())
    path = write_log(
        codex_path(world.home, session_id),
        codex_records(session_id, shop, [f"task {n} {'x ' * 900}" for n in range(9)]),
    )
    path.write_text(path.read_text().replace("task 4", "swordfish"))
    indexed()

    cut(Request(session_id, ids=turn_ids(path, "swordfish"), follow=False))

    assert "swordfish" in check(session_id)["words_found"]
    assert not check(session_id)["ok"]
    indexed()
    assert "swordfish" not in everything_indexed()
    assert check(session_id)["ok"]


def kill(*_: object) -> None:
    raise KeyboardInterrupt


def fork_upon_its_parent(world: World, shop) -> tuple[str, str, Request]:
    """A session of Codex, its fork, and a cut of turns that both have."""
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    records = codex_records(parent, shop, ["add retry", "swordfish", "and the docs"])
    path = write_log(codex_path(world.home, parent), records)
    base = {"thread_id": parent, "end_ordinal_exclusive": len(records), "end_byte_offset": path.stat().st_size}
    write_log(
        codex_path(world.home, child),
        codex_records(child, shop, ["and the tests"], len(records), forked_from_id=parent, history_base=base),
    )
    indexed()
    return parent, child, Request(parent, ids=turn_ids(path, "swordfish"))


@pytest.mark.parametrize("killed", thorough_except_first([False, True]))
def test_a_fork_that_reads_from_its_parents_file_forgets_it_too(world: World, shop, monkeypatch, killed):
    """Codex's forks continue their parents' files. They lose the turns too, which needs --force."""
    _, child, request = fork_upon_its_parent(world, shop)
    with pytest.raises(Exception, match="forks read these turns"):
        cut(request)

    with monkeypatch.context() as patch:
        if killed:
            patch.setattr("smart_fork.excise.cutting.refresh", kill)
        with pytest.raises(KeyboardInterrupt) if killed else nullcontext():
            cut(replace(request, force=True))
    assert erasure.run_pending()
    indexed()

    assert "swordfish" not in everything_indexed()
    assert "swordfish" not in export_path("codex", child).read_text()
    assert check(child)["ok"]


def test_what_a_parent_has_gone_on_with_is_none_of_its_forks(world: World, shop):
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    path = write_log(codex_path(world.home, parent), codex_records(parent, shop, ["add retry", "swordfish"]))
    base = {"thread_id": parent, "end_ordinal_exclusive": 9, "end_byte_offset": 1}
    write_log(
        codex_path(world.home, child),
        codex_records(child, shop, ["and the tests"], 9, forked_from_id=parent, history_base=base),
    )

    cut(Request(parent, ids=turn_ids(path, "swordfish")))

    assert "swordfish" not in path.read_text()


def test_a_damaged_index_keeps_nobody_from_cutting(world: World, shop):
    session_id = world.claude(shop, *SAID)
    indexed()
    (world.home / ".smart-fork/index.db").write_bytes(b"no database" * 999)

    outcome = cut(Request(session_id, "2-3"))

    assert outcome["index"]["updated"]
    assert "swordfish" not in world.log_of(session_id).read_text()
    assert [] == damage.kept(index_db())


def test_what_a_fork_has_from_its_parent_is_not_cut_there(world: World, shop):
    parent, child = str(uuid.uuid4()), str(uuid.uuid4())
    records = codex_records(parent, shop, ["add retry"])
    path = write_log(codex_path(world.home, parent), records)
    base = {"thread_id": parent, "end_ordinal_exclusive": len(records), "end_byte_offset": path.stat().st_size}
    own = write_log(
        codex_path(world.home, child),
        codex_records(child, shop, ["and the tests"], len(records), forked_from_id=parent, history_base=base),
    )
    before = path.read_bytes(), own.read_bytes()

    with pytest.raises(Exception, match="belong to its parent session"):
        cut(Request(child, ids=("4",)))

    assert before == (path.read_bytes(), own.read_bytes())


@pytest.mark.slow
def test_copies_and_branches_that_we_made_are_cut_alike(world: World, shop):
    session_id, branch = world.claude(shop, *SAID), str(uuid.uuid4())
    log = world.log_of(session_id)
    copy = folder_of(world.home / "elsewhere") / log.name
    copy.parent.mkdir(parents=True)
    shutil.copy(log, copy)
    forked = [json.loads(line) for line in log.read_bytes().splitlines()]
    for record in forked:
        record["forkedFrom"] = {"sessionId": session_id, "messageUuid": record["uuid"]}
        record["sessionId"] = branch
    written = write_log(log.with_name(f"{branch}.jsonl"), forked)
    with Registry() as registry:
        registry.add_staged_copy(copy, session_id=session_id, source_path=log)
    indexed()

    outcome = cut(Request(session_id, ids=turn_ids(log, "swordfish")))

    assert {str(copy), str(written)} == {one["path"] for one in outcome["followed"]}
    assert [] == outcome["left"]
    for path in (log, copy, written):
        assert "swordfish" not in path.read_text()
        assert "retry" in path.read_text()
    assert "swordfish" not in everything_indexed()
    for one in outcome["followed"]:
        rollback(one["snapshot"])
    assert "swordfish" in copy.read_text()


def test_a_session_that_is_cut_to_nothing_is_found_no_more(world: World, shop):
    session_id = world.claude(shop, "the passphrase is swordfish", "I will remember swordfish")
    indexed()

    cut(Request(session_id, "0-1", force=True))

    assert "swordfish" not in everything_indexed()
    assert not export_path("claude", session_id).exists()
    assert [] == world.ids("swordfish", shop)


def test_nothing_is_made_where_there_is_no_index(world: World, shop):
    session_id = world.claude(shop, *SAID)

    outcome = cut(Request(session_id, "2-3"))

    assert not outcome["index"]["updated"]
    assert not (world.home / ".smart-fork/index.db").exists()


def test_secrets_are_masked_where_they_stand_and_pairs_and_ids_stay(world: World, shop):
    """Cut --secrets: also in copies."""
    token = "ghp_" + "a1B2" * 9
    session_id = world.claude(shop, "add retry", "done", f"my token is {token}, use it", "used")
    log = world.log_of(session_id)
    before = [json.loads(line) for line in log.read_bytes().splitlines()]
    indexed()

    outcome = cut(Request(session_id, secrets=True))

    after = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert {"github-token": 1} == outcome["masked"]
    assert [] == outcome["removed"]
    assert [record["uuid"] for record in before] == [record["uuid"] for record in after]
    assert [record["parentUuid"] for record in before] == [record["parentUuid"] for record in after]
    assert "my token is [REDACTED:github-token], use it" == after[2]["message"]["content"]
    assert token not in log.read_text()
    assert check(session_id)["ok"]
    assert not cut(Request(session_id, secrets=True))["masked"]
