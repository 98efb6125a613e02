"""Cut text is in no file of smart-fork, and `verify` searches all of them."""

from __future__ import annotations

import gzip
import json
import shutil
import uuid
import zlib
from pathlib import Path

import apsw
import pytest

import smart_fork
from indexer import kept_logs, sqlite_tools, state_db
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.session_export import export_path
from indexer.transcripts import lines
from smart_fork.agents.excision import snapshots
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import NotFound, Usage
from smart_fork.excise import Request, check, cut, writing
from smart_fork.excise import erasure as erasing
from smart_fork.finding.index_access import opened
from smart_fork.workers.registry import Registry
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.session_family import branch
from tests.smart_fork.world import WordsModel, World
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.usefixtures("command_model")
SAID = ("add retry to the uploader", "retries are there", "we call the ship swordfish77zq", "I will remember that")
SECRET = "swordfish77zq"
#: Word indexes keep a word without the beginning that it shares with the one before.
END = b"ordfish77zq"


def indexed() -> None:
    with opened() as store:
        complete(store, READERS, WordsModel(), patience=5)


def everything(*, snapshots_too: bool = False) -> bytes:
    """Return every byte of smart-fork's files, decompressed."""
    found = b""
    for path in state_home().rglob("*"):
        if path.is_file() and (snapshots_too or "snapshots" not in path.parts):
            data = path.read_bytes()
            found += gzip.decompress(data) if path.suffix == ".gz" else data
    for agent in ("claude", "codex"):
        for copy in kept_logs.copies():
            if copy.agent == agent:
                for part in (copy.log, *copy.beside.values()):
                    found += b"".join(kept_logs.pieces(copy.folder, part))
    return found.lower()


@pytest.fixture
def session_id(world: World, shop) -> str:
    made = world.claude(shop, *SAID)
    indexed()
    return made


def secret_turns(world: World, session_id: str) -> list[str]:
    lines = world.log_of(session_id).read_bytes().splitlines()
    return [one["uuid"] for one in map(json.loads, lines) if SECRET in json.dumps(one)]


def cut_secret(world: World, session_id: str, **how) -> dict:
    return cut(Request(session_id, ids=secret_turns(world, session_id), force=True, **how))


def test_what_was_cut_is_in_no_byte_but_the_snapshot_that_the_answer_names(world, session_id):
    assert END in everything()
    done = cut_secret(world, session_id)

    assert END not in everything()
    assert END in everything(snapshots_too=True)
    assert (True, [done["snapshot"]]) == (done["erased"], done["snapshots"])
    assert f"smart-fork excise discard {done['snapshot']}" == done["discard"]
    snapshots.discard(done["snapshots"])
    assert END not in everything(snapshots_too=True)


def test_a_masked_secret_is_in_no_byte(world, shop):
    secret = f"ghp_{uuid.uuid4().hex}{uuid.uuid4().hex}"[:40]
    session_id = world.claude(shop, f"the token is {secret}", "noted", "go on", "done")
    with Registry() as registry:
        registry.add("claude", source_session_id=session_id, place="process", cwd=shop, prompt=f"use {secret}")
    indexed()
    (state_home() / "logs").mkdir(exist_ok=True)
    (state_home() / "logs/index.log").write_text(f"Traceback: could not use {secret}\n")
    assert secret.encode() in everything()
    done = cut(Request(session_id, secrets=True, force=True))

    assert {"github-token": 1} == done["masked"]
    assert secret[4:].encode() not in everything()
    assert check(session_id)["ok"]


def test_the_register_keeps_that_there_was_a_worker_and_nothing_of_what_was_cut(world, session_id, shop):
    with Registry() as registry:
        told = registry.add(
            "claude", name=SECRET, source_session_id=session_id, place="process", cwd=shop, prompt=f"say {SECRET}"
        )
        registry.set_started(told.id, command=["claude", "-p", f"say {SECRET}"])
        registry.set_status(told.id, "waiting", f"May I say {SECRET}?")
        other = registry.add("claude", source_session_id="", place="process", cwd=shop, prompt="draw the map")
    cut_secret(world, session_id)

    assert END not in everything()
    with Registry() as registry:
        found = registry.get(told.id)
        assert (told.id, erasing.PLACEHOLDER, ("claude", "-p", erasing.PLACEHOLDER)) == (
            found.name,
            found.prompt,
            found.command,
        )
        assert "draw the map" == registry.get(other.id).prompt


def test_logs_are_blotted_where_they_stand(world, session_id, shop):
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=session_id, place="process", cwd=shop)
    folder = state_home() / "logs/workers"
    folder.mkdir(parents=True)
    output, left, crash = folder / f"{worker.id}.log", folder / f"{worker.id}.ab.command.json", folder.parent / "x.log"
    for path in (output, left, crash):
        path.write_text(json.dumps({"message": f"indexing of {SECRET} failed"}))
    with crash.open("a") as file:  # as a service has its log open
        cut_secret(world, session_id)
        file.write("\nand on it goes")

    assert END not in everything()
    message, rest = crash.read_text().split("\n")
    assert (f"indexing of {'*' * len(SECRET)} failed", "and on it goes") == (json.loads(message)["message"], rest)


def test_a_long_output_that_lay_beside_the_log_is_kept_without_what_was_cut(world, session_id, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "1")
    beside = world.log_of(session_id).with_suffix("") / "tool-results"
    beside.mkdir(parents=True)
    (beside / "call1.txt").write_text(f"password: {SECRET}")
    (beside / "call2.txt").write_text("nothing")
    indexed()
    assert {"tool-results/call1.txt", "tool-results/call2.txt"} == set(kept_logs.find("claude", session_id).beside)
    cut_secret(world, session_id)
    indexed()

    assert {"tool-results/call2.txt"} == set(kept_logs.find("claude", session_id).beside)
    assert END not in everything()


def test_what_killed_processes_left_goes_with_the_cut(world, session_id, monkeypatch):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "1")
    indexed()
    unused = kept_logs.find("claude", session_id).folder / "0123456789abcdef.zst"
    half = state_home() / f"snapshots/{session_id}/.20260101T000000.000000Z.jsonl.gz.0123456789abcdef.tmp"
    opened_copy = state_home() / "kept/.reading/killed" / f"{session_id}.jsonl"
    for path in (half, opened_copy, unused):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
    cut_secret(world, session_id)

    assert [] == [path for path in (half, opened_copy, unused) if path.exists()]


def places(found: dict) -> dict[str, str]:
    return {str(Path(one["path"]).relative_to(state_home())): one["kind"] for one in found["remains"]}


@pytest.mark.parametrize(
    ("name", "kind", "written"),
    thorough_except_first(
        [
            ("logs/service.log", "log", SECRET.encode()),
            ("logs/service.log.1", "log", rb'{"message":"swordfish\u0037\u0037zq"}'),
            ("index/claude/{id}.md", "export", f"say {SECRET}".encode()),
            ("index/claude/.{id}.md.0123456789abcdef.tmp", "half a file", SECRET.encode()),
            ("index.db.corrupt-20260101T000000000000Z", "older index", b"\x01\x02" + SECRET.encode() + b"\x03"),
            ("kept/claude/{id}/0123456789abcdef.zst", "kept copy", None),
            ("kept/.reading/killed/{id}.jsonl", "kept copy", SECRET.encode()),
            ("hooks/0123.json", "file", SECRET.encode()),
        ]
    ),
)
def test_verify_names_the_file_that_has_something_of_it_and_not_what(world, session_id, name, kind, written):
    cut_secret(world, session_id)
    assert (True, []) == ((found := check(session_id))["ok"], found["remains"])
    path = state_home() / name.format(id=session_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    if written is None:
        import zstandard

        written = zstandard.ZstdCompressor().compress(SECRET.encode())
    path.write_bytes(written)
    found = check(session_id)

    assert (False, {name.format(id=session_id): kind}) == (found["ok"], places(found))
    assert SECRET not in json.dumps(found["remains"])


def test_verify_says_that_an_index_is_still_to_be_erased(world, session_id, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(writing, "erase_owed", lambda store: True)
        cut_secret(world, session_id)
    assert END in everything()
    assert "index" in set(places(check(session_id)).values())
    indexed()

    assert check(session_id)["ok"]


def test_verify_finds_what_is_in_an_older_index_where_there_is_no_other(world, session_id):
    cut_secret(world, session_id)
    for path in state_home().glob("index.db*"):
        path.unlink()
    older = state_home() / "index.db.corrupt-20260101T000000000000Z"
    older.write_bytes(b"\x01\x02" + SECRET.encode())

    assert {older.name: "older index"} == places(check(session_id))


def packed() -> bytes:
    """Return the stored state with which the index reads on in logs."""
    with opened() as store:
        rest = b"".join(packed for (packed,) in store.db.execute("SELECT state FROM files"))
    found = b""
    while rest:
        unpacking = zlib.decompressobj(wbits=47)
        found += unpacking.decompress(rest)
        rest = unpacking.unused_data
    return found.lower()


def test_what_the_index_keeps_packed_of_a_log_has_nothing_of_what_was_cut(world, shop, monkeypatch):
    monkeypatch.setattr(lines, "RESUME_BYTES", 1)
    session_id = world.claude(shop, *SAID)
    indexed()
    assert END in packed()
    cut_secret(world, session_id)

    assert END not in packed()


def test_verify_finds_what_is_in_the_register(world, session_id, shop):
    cut_secret(world, session_id)
    with Registry() as registry:
        registry.add("claude", source_session_id=session_id, place="process", cwd=shop, prompt=f"use {SECRET}")

    assert {"register of workers"} == set(places(check(session_id)).values())


def test_what_others_say_as_well_is_no_trace(world, session_id, shop):
    other = world.claude(shop, f"what was {SECRET} about?", "a passphrase", "add retry", "done")
    indexed()
    with Registry() as registry:
        worker = registry.add("claude", source_session_id=other, place="process", cwd=shop, prompt=f"tell {SECRET}")
    output = state_home() / f"logs/workers/{worker.id}.log"
    output.parent.mkdir(parents=True)
    output.write_text(f"It is {SECRET}")
    cut_secret(world, session_id)

    assert (True, []) == ((found := check(session_id))["ok"], found["remains"])
    assert f"It is {SECRET}" == output.read_text()
    assert other in world.ids(SECRET, shop)


def test_the_words_of_our_own_messages_are_no_trace_in_our_logs(world, shop):
    session_id = world.claude(shop, "add retry", "done", "indexing run completed, sessions embedded", "well")
    indexed()
    (state_home() / "logs").mkdir(exist_ok=True)
    (state_home() / "logs/service.log").write_text("Indexing run completed: sessions embedded")
    lines = world.log_of(session_id).read_bytes().splitlines()
    cut(Request(session_id, ids=[one["uuid"] for one in map(json.loads, lines) if "embedded" in json.dumps(one)]))

    assert check(session_id)["ok"]
    assert "Indexing run completed: sessions embedded" == (state_home() / "logs/service.log").read_text()


def test_the_names_of_our_own_tables_are_no_trace_in_the_register(world, shop):
    session_id = world.claude(shop, "add retry", "done", "default references, unique worktree of caller", "well")
    with Registry() as registry:
        registry.add("claude", source_session_id="", place="process", cwd=shop, prompt="draw the map")
    indexed()
    lines = world.log_of(session_id).read_bytes().splitlines()
    cut(Request(session_id, ids=[one["uuid"] for one in map(json.loads, lines) if "references" in json.dumps(one)]))

    assert (True, []) == ((found := check(session_id))["ok"], found["remains"])


def test_without_its_snapshot_nobody_knows_what_was_cut_and_verify_says_so(world, session_id):
    done = cut_secret(world, session_id)
    before = check(session_id)
    snapshots.discard(done["snapshots"])
    after = check(session_id)

    assert (done["snapshots"], 0) == (before["snapshots"], before["unknown"])
    assert ([], 1) == (after["snapshots"], after["unknown"])


def test_a_cut_that_was_ended_before_all_was_erased_is_made_up_for(world, session_id, shop, monkeypatch):
    with Registry() as registry:
        registry.add("claude", source_session_id=session_id, place="process", cwd=shop, prompt=f"use {SECRET}")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("smart_fork.excise.cutting.refresh", killed)
        with pytest.raises(KeyboardInterrupt):
            cut_secret(world, session_id)
    assert END in everything()
    assert not any(SECRET in facts for (facts,) in state_db.rows("SELECT facts FROM owed_erasures"))
    indexed()
    assert erasing.run_pending()

    assert END not in everything()
    assert [] == state_db.rows("SELECT * FROM owed_erasures")


def test_what_others_still_read_is_said_to_be_left(world, session_id, monkeypatch):
    monkeypatch.setattr(sqlite_tools, "PATIENCE_MILLISECONDS", 10)
    reader = apsw.Connection(str(index_db()))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM chunks").fetchone()
    done = cut_secret(world, session_id)
    reader.close()

    assert (False, False) == (done["erased"], done["index"]["erased"])
    indexed()
    assert END not in everything()


def test_a_forgotten_session_leaves_nothing_with_any_worker_that_went_on_with_it(world, session_id, shop):
    folder = state_home() / "logs/workers"
    folder.mkdir(parents=True)
    with Registry() as registry:
        for kind in ("resume", "resume"):
            worker = registry.add(
                "claude", source_session_id=session_id, place="process", cwd=shop, prompt=f"use {SECRET}", kind=kind
            )
            registry.set_started(worker.id, command=["claude", f"use {SECRET}"])
            registry.set_session_id(worker.id, session_id)
            (folder / f"{worker.id}.log").write_text(SECRET)
    done = smart_fork.forget(session_id)

    assert done.erased
    assert END not in everything(snapshots_too=True)


class TestCommands:
    def test_a_cut_says_which_snapshot_has_it_and_discard_deletes_that(self, run, world, session_id):  # noqa: F811
        turns = [word for one in secret_turns(world, session_id) for word in ("--id", one)]
        done = run("excise", "cut", session_id, *turns, "--force", "-y")
        (snapshot,) = snapshots.snapshots(session_id)
        assert f"smart-fork excise discard {snapshot.id}" in done.out
        assert 2 == run("excise", "discard", snapshot.id, "--json").code
        verified = run("excise", "verify", session_id)
        assert (0, True) == (verified.code, f"smart-fork excise discard {snapshot.id}" in verified.err)
        assert {"discarded": [snapshot.id]} == json.loads(run("excise", "discard", snapshot.id, "-y", "--json").out)

        assert 3 == run("excise", "discard", snapshot.id, "-y").code
        told = branch(session_id, as_agent="codex")
        verified = run("excise", "verify", session_id)
        assert (1, "not known") == (verified.code, verified.out.strip())
        assert told["path"] in verified.err
        as_json = json.loads(run("excise", "verify", session_id, "--json").out)
        assert (False, 1, [told["path"]]) == tuple(as_json[name] for name in ("ok", "unknown", "unsearched"))

    def test_verify_never_repeats_what_was_cut(self, run, world, session_id):  # noqa: F811
        cut_secret(world, session_id)
        export_path("claude", session_id).write_text(SECRET)
        for words in ((), ("--json",)):
            found = run("excise", "verify", session_id, *words)
            assert (1, False) == (found.code, SECRET in found.out + found.err)
            assert str(export_path("claude", session_id)) in found.out

    def test_an_index_run_makes_up_for_a_cut_that_was_killed(self, run, world, session_id, monkeypatch):  # noqa: F811
        with monkeypatch.context() as patch:
            patch.setattr(erasing, "erase", lambda *_: False)
            cut_secret(world, session_id)
        assert state_db.rows("SELECT * FROM owed_erasures")
        assert 0 == run("index", "run").code

        assert [] == state_db.rows("SELECT * FROM owed_erasures")


def test_the_snapshots_of_a_session_are_found_by_the_beginning_of_its_id(world, session_id):
    (made,) = cut_secret(world, session_id)["snapshots"]

    assert [made] == [one.id for one in snapshots.of_session(session_id[:8])]
    shutil.copytree(snapshots.folder_of(session_id), snapshots.folder_of(f"{session_id[:-1]}x"))
    with pytest.raises(Usage):
        snapshots.of_session(session_id[:8])


def test_only_snapshots_are_discarded(world, session_id):
    done = cut_secret(world, session_id)
    with pytest.raises(NotFound):
        snapshots.discard([*done["snapshots"], f"{session_id}/20200101T000000.000000Z"])

    assert snapshots.snapshots(session_id)
    shutil.rmtree(snapshots.root())
    assert [] == snapshots.discard([])


def test_what_verify_finds_it_erases_where_it_is_told_to(run, world, session_id):  # noqa: F811
    cut_secret(world, session_id)
    (state_home() / "logs").mkdir(exist_ok=True)
    (state_home() / "logs/service.log").write_text(SECRET)
    export_path("claude", session_id).write_text(SECRET)
    found = run("excise", "verify", session_id)
    assert (1, True) == (found.code, f"excise verify {session_id} --erase" in found.err)

    assert 0 == run("excise", "verify", session_id, "--erase").code
    assert END not in everything()


def test_an_index_that_cannot_be_used_while_something_is_cut_is_erased_when_it_can_be(world, session_id):
    with opened() as store:
        known = store.db.pragma("user_version")
        store.db.pragma("user_version", 999)  # as a newer version has left it
    done = cut_secret(world, session_id)
    assert (False, False) == (done["index"]["updated"], done["erased"])
    assert state_db.rows("SELECT * FROM owed_erasures")
    with apsw.Connection(str(index_db())) as db:
        db.pragma("user_version", known)
    indexed()
    assert erasing.run_pending()

    assert END not in everything()


def test_a_cut_that_the_index_could_not_follow_does_not_say_that_search_finds_nothing(world, session_id, run):  # noqa: F811
    with opened() as store:
        store.db.pragma("user_version", 999)

    said = run("excise", "cut", "0", session_id, "--yes", "--force").err

    assert (True, False) == ("Search can still find it." in said, "Search no longer finds it" in said)


def test_a_damaged_index_goes_with_what_is_cut(world, session_id):
    whole = index_db().read_bytes()
    index_db().write_bytes(whole[:100] + b"?" * 3996 + whole[4096:])

    assert cut_secret(world, session_id)["erased"]
    assert END not in everything()
