"""The way from logs to the index, and the cost of a second run."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from indexer import log_changes, masking, pipeline
from indexer.log_changes import Report, changed_logs
from indexer.masking import mask
from indexer.pipeline import document_of, embed_waiting, read_logs
from indexer.safe_files import index_db
from indexer.session_export import export_path, parse_front_matter, pieces_of, to_markdown
from indexer.store.sqlite import Store
from indexer.transcripts import reader_state
from indexer.transcripts.base import Agents
from indexer.transcripts.model import ToolCall, Turn
from smart_fork.agents.claude.log_files import ClaudeAdapter
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import (
    HashEmbedder,
    append,
    claude_log,
    claude_records,
    codex_log,
    content,
    lines,
    session_of,
)

ONE, TWO = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def store():
    store = Store(index_db())
    yield store
    store.close()


def run(store, embedder=None, progress=None) -> Report:
    report = Report()
    read_logs(store, READERS, changed_logs(store, READERS, report), report, progress=progress)
    if embedder:
        embed_waiting(store, embedder, report, progress=progress)
    return report


def words(store, word: str) -> list[str]:
    scope = store.scope(None, ("claude", "codex"), automated=True)
    hits = store.match_words("sessions", [f'"{word}"'], scope, 99)
    return sorted(row.session_id for row in store.sessions(hit.row for hit in hits).values())


def test_logs_of_both_agents_are_indexed_and_exported(store):
    claude_log(ONE, "/work/a", "upload with retries", "done")
    codex_log(TWO, "/work/b", "download with retries", "done")
    report = run(store, HashEmbedder())

    assert (2, 2, 2, 2, 0) == (report.files, report.read, report.sessions, report.exported, report.waiting)
    assert [ONE, TWO] == words(store, "retries")
    for agent, session_id in (("claude", ONE), ("codex", TWO)):
        assert session_id == parse_front_matter(export_path(agent, session_id).read_text())["session_id"]


@pytest.mark.slow
def test_an_unchanged_tree_costs_one_stat_a_log_and_opens_none():
    """Counted in another process, since an audit hook cannot be removed."""
    for number in range(20):
        claude_log(f"{number:08}-1111-4111-8111-111111111111", f"/work/{number % 3}", "question", "answer")
    script = """
import os, sys
from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.store.sqlite import Store
from smart_fork.agents.log_readers import READERS
store = Store(index_db())
assert complete(store, READERS, None, patience=1).read == 20
opened, stats = [], []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
class Entry:
    def __init__(self, entry): self.entry, self.name, self.path = entry, entry.name, entry.path
    def is_dir(self, **options): return self.entry.is_dir(**options)
    def is_file(self, **options): return self.entry.is_file(**options)
    def is_symlink(self): return self.entry.is_symlink()
    def stat(self): stats.append(self.path); return self.entry.stat()
real = os.scandir
class Entries(list):
    def __enter__(self): return self
    def __exit__(self, *_): pass
os.scandir = lambda folder: Entries(Entry(entry) for entry in real(folder))
report = complete(store, READERS, None, patience=1)
assert (report.unchanged, report.read) == (20, 0), report
assert [path for path in opened if not path.endswith(".lock")] == [], opened
assert len(stats) == len(set(stats)) == 20, stats
"""
    root = Path(pipeline.__file__).parent.parent
    subprocess.run([sys.executable, "-c", script], check=True, cwd=root)


def test_only_what_was_added_is_read_again(store):
    path = claude_log(ONE, "/work/a", "first", "answer")
    run(store)
    before = path.stat().st_size
    last = json.loads(path.read_bytes().splitlines()[-1])["uuid"]
    append(path, lines(claude_records(ONE, "/work/a", ["second"], first=2, parent=last)))
    report = run(store)

    assert (1, 1, path.stat().st_size - before) == (report.read, report.resumed, report.bytes_read)
    assert [ONE] == words(store, "first") == words(store, "second")
    assert "second" in export_path("claude", ONE).read_text()


def test_another_version_of_anything_reads_all_again(store, monkeypatch):
    claude_log(ONE, "/work/a", "first")
    run(store)
    monkeypatch.setattr(log_changes, "VERSION", log_changes.VERSION + ".x")
    report = run(store)

    assert (1, 0, 1, 0) == (report.read, report.resumed, report.sessions, report.exported)  # the export is as it was
    assert 1 == run(store).unchanged


def test_the_version_names_every_form_that_the_index_depends_on():
    of = (reader_state.READER_VERSION, log_changes.CHUNKER_VERSION, masking.VERSION, log_changes.EXPORT_VERSION)

    assert ".".join(map(str, of)) == log_changes.VERSION


def test_an_export_by_an_earlier_version_of_the_masks_or_of_its_form_is_made_again(store, monkeypatch):
    now = log_changes.VERSION
    for part in (2, 3):  # of the masks, of the export
        numbers = now.split(".")
        numbers[part] = str(int(numbers[part]) - 1)
        claude_log(ONE, "/work/a", "first PASSWORD=swordfish")
        monkeypatch.setattr(log_changes, "VERSION", ".".join(numbers))
        run(store)
        export_path("claude", ONE).write_text("as it was made then: swordfish")
        monkeypatch.setattr(log_changes, "VERSION", now)

        assert 1 == run(store).exported
        assert "swordfish" not in export_path("claude", ONE).read_text()
        assert "first PASSWORD=[REDACTED:password]" in export_path("claude", ONE).read_text()


def test_the_form_of_an_export_changes_with_its_version():
    """A change of the export needs a new version, so that every export is written again. Both are updated here."""
    session = session_of("ask", "answer\n\n\n\nmore", cwd="/work/a")
    call = Turn("t2", None, "assistant", "", tool_calls=(ToolCall("c", "Bash", mask("run ls")),))
    session = replace(session, turns=(*session.turns, call))
    made = to_markdown(session, pieces_of(session, mask), "/work").text
    assert (2, "c11fc935c51be313") == (log_changes.EXPORT_VERSION, hashlib.sha256(made.encode()).hexdigest()[:16])


def test_an_export_that_was_removed_is_written_again(store):
    claude_log(ONE, "/work/a", "first")
    claude_log(TWO, "/work/a", "second")
    run(store)
    kept, lost = export_path("claude", ONE), export_path("claude", TWO)
    text, stamp = lost.read_bytes(), kept.stat().st_mtime_ns
    lost.unlink()
    report = run(store)

    assert (1, 1, text, stamp) == (report.unchanged, report.exported, lost.read_bytes(), kept.stat().st_mtime_ns)
    assert 2 == run(store).unchanged


def test_a_log_that_cannot_be_indexed_does_not_keep_the_others_out(store, caplog):
    bad = claude_log(ONE, "/work/a", "first")
    claude_log(TWO, "/work/a", "second")
    real = ClaudeAdapter.read

    def read(self, path, checkpoint=None, **options):
        if path == bad:
            raise RecursionError("a very odd log")
        return real(self, path, checkpoint, **options)

    patch = pytest.MonkeyPatch()
    patch.setattr(ClaudeAdapter, "read", read)
    report = run(store)
    assert {str(bad): "RecursionError: a very odd log"} == report.failed
    assert "cannot index" in caplog.text
    assert [TWO] == words(store, "second")
    assert {"could not be indexed": 1} == store.counts().skipped
    assert 2 == run(store).unchanged  # not tried again and again

    patch.undo()
    append(bad, b"\n")
    assert {} == run(store).failed


def test_a_session_whose_log_turns_odd_stays_as_it_was(store, monkeypatch):
    path = claude_log(ONE, "/work/a", "first")
    run(store)
    append(path, b"{}\n")
    with monkeypatch.context() as patch:
        patch.setattr(ClaudeAdapter, "read", lambda *_, **__: 1 / 0)
        run(store)

    assert [ONE] == words(store, "first")
    path.unlink()
    run(store)
    assert "" == store.session("claude", ONE).path


def test_a_log_that_cannot_be_opened_is_tried_again(store, monkeypatch):
    path = claude_log(ONE, "/work/a", "first")

    def denied(*_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(ClaudeAdapter, "read", denied)
        assert {str(path): "Permission denied"} == run(store).failed
    assert 1 == run(store).sessions


def test_an_export_that_cannot_be_written_leaves_the_log_for_the_next_run(store, monkeypatch):
    claude_log(ONE, "/work/a", "first")
    with monkeypatch.context() as patch:

        def in_the_way(*_):
            raise IsADirectoryError(21, "Is a directory")

        patch.setattr(pipeline, "write_export", in_the_way)
        assert 1 == len(run(store).failed)
    assert 0 == store.counts().sessions
    assert 1 == run(store).exported


def test_a_full_disk_ends_the_run_and_leaves_the_log_for_the_next_one(store, monkeypatch):
    claude_log(ONE, "/work/a", "first")
    with monkeypatch.context() as patch:

        def full(*_):
            raise OSError(28, "No space left on device")

        patch.setattr(pipeline, "write_export", full)
        with pytest.raises(OSError, match="No space left"):
            run(store)
    assert 0 == store.counts().sessions
    assert 1 == run(store).exported


def test_a_name_that_is_no_text_disturbs_nobody(store):
    path = claude_log(ONE, "/work/a", "first")
    odd = os.fsencode(path.parent) + b"/\xff.jsonl"
    try:
        Path(os.fsdecode(odd)).write_bytes(path.read_bytes())
    except OSError:
        pytest.skip("this file system takes no such name")

    assert (1, {}) == (run(store).sessions, run(store).failed)


def test_broken_torn_blank_and_foreign_lines_are_passed_over_and_counted(store, caplog):
    tail = b'not json\n\n[1]\n"\xff\xfe"\n' + b"{broken\n" * 3 + b'{"torn'
    path = claude_log(ONE, "/work/a", "first", "answer", tail=tail)
    report = run(store)

    assert (1, 6) == (report.sessions, report.broken_lines)
    assert f"{path}:3: not a record" in caplog.text
    assert "3 more lines" in caplog.text
    assert [ONE] == words(store, "first")
    append(path, b'"}\n')
    assert (1, 7) == (run(store).broken_lines, store.counts().broken_lines)


def test_a_log_without_a_conversation_is_counted_with_its_reason(store):
    claude_log(ONE, "/work/a")
    report = run(store)

    assert (0, {"no conversation": 1}) == (report.sessions, report.skipped)
    assert not export_path("claude", ONE).exists()


# -- logs that go and come (F-158, D17)


def test_a_session_outlives_its_log_and_gets_it_back(store):
    path = claude_log(ONE, "/work/a", "first", "answer")
    run(store)
    data = path.read_bytes()
    path.unlink()
    assert 1 == run(store).removed
    assert ("", [ONE]) == (store.session("claude", ONE).path, words(store, "first"))
    assert "first" in export_path("claude", ONE).read_text()
    assert 0 == run(store).removed

    path.write_bytes(data)
    assert 1 == run(store).sessions
    assert str(path) == store.session("claude", ONE).path


def test_logs_that_are_merely_elsewhere_are_not_gone(store, monkeypatch, tmp_path):
    path = claude_log(ONE, "/work/a", "first")
    codex_log(TWO, "/work/a", "second")
    run(store)
    report = Report()
    changed_logs(store, Agents(READERS["claude"]), report)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "another"))
    run(store)

    assert 0 == report.removed
    assert str(path) == store.session("claude", ONE).path
    assert store.session("codex", TWO).path


def test_a_staged_copy_is_no_second_session_and_takes_over_at_once_when_the_original_goes(store):
    original = claude_log(ONE, "/work/a", "first", "answer")
    copy = claude_log(ONE, "/work/a", "first", "answer", folder="-work-zzz")
    run(store)
    assert (1, str(original)) == (store.counts().sessions, store.session("claude", ONE).path)

    original.unlink()
    report = run(store)
    assert (1, 1, str(copy)) == (report.removed, report.resumed, store.session("claude", ONE).path)


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_different_copies_the_newer_wins_whichever_is_seen_first(store, first):
    texts = [("first", "answer"), ("first", "answer", "later")]
    paths = {}
    for index in (first, 1 - first):
        paths[index] = claude_log(ONE, "/work/a", *texts[index], folder=f"-work-{index}")
        run(store)

    assert str(paths[1]) == store.session("claude", ONE).path
    assert [ONE] == words(store, "later")
    assert "later" in export_path("claude", ONE).read_text()
    fresh = content(index_db())
    run(store)
    assert fresh == content(index_db())


# -- where a session belongs


@pytest.mark.parametrize("cwd", ["", "relative", ".", "C:\\work", "~/x", "/a\0b"])
def test_what_is_no_directory_of_this_system_is_nowhere(cwd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document, _ = document_of(session_of("hi", cwd=cwd), READERS)

    assert ("", "", False) == (document.resolved_cwd, document.project.key, document.project.git)


def test_a_session_of_a_removed_worktree_stays_in_its_repository(store, tmp_path, monkeypatch):
    repo, worktree = tmp_path / "repo", tmp_path / "tree"
    (repo / ".git/worktrees/tree").mkdir(parents=True)
    for name, text in (("HEAD", "ref: refs/heads/x"), ("commondir", "../.."), ("gitdir", f"{worktree}/.git")):
        (repo / ".git/worktrees/tree" / name).write_text(text + "\n")
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {repo}/.git/worktrees/tree\n")
    claude_log(ONE, str(worktree), "first")
    run(store)
    (worktree / ".git").unlink()
    worktree.rmdir()
    monkeypatch.setattr(log_changes, "VERSION", "next")
    run(store)

    assert str(repo) == store.session("claude", ONE).repo_root
    worktree.mkdir()  # there again, and no worktree any more
    monkeypatch.setattr(log_changes, "VERSION", "one after")
    run(store)
    assert "" == store.session("claude", ONE).repo_root


# -- secrets, progress, vectors


def test_secrets_reach_neither_export_nor_index(store):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    claude_log(ONE, "/work/a", f"use the token {secret} please", f"used {secret}")
    run(store, HashEmbedder())

    assert "REDACTED" in export_path("claude", ONE).read_text()
    found = content(index_db())
    found.pop("vectors")
    assert secret not in str(found)


def test_a_secret_that_the_title_cuts_in_two_is_masked(store):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    claude_log(ONE, "/work/a", "word " * 15 + secret + " and then some more words to go on with")
    run(store)

    title = store.session("claude", ONE).title
    assert title.startswith("word word")
    assert "ghp_" not in title
    assert len(title) <= 100


def test_progress_is_told_of_both_stages(store):
    for number in range(3):
        claude_log(f"{number:08}-1111-4111-8111-111111111111", "/work/a", f"question {number}")
    told = []
    run(store, HashEmbedder(), lambda *step: told.append(step))

    assert [("reading", n, 3) for n in range(4)] + [("embedding", 0, 3), ("embedding", 3, 3)] == told


def test_a_text_is_embedded_once_and_the_model_not_loaded_without_need(store):
    claude_log(ONE, "/work/a", "same question", "answer " * 150)
    claude_log(TWO, "/work/b", "same question", "answer " * 150)
    embedder = HashEmbedder()
    run(store, embedder)
    assert len(embedder.embedded) == len(set(embedder.embedded)) > 1
    assert store.counts().embedded == store.counts().chunks

    class NotNeeded(HashEmbedder):
        dimensions = property(lambda _: 1 / 0)

        def __init__(self, model):
            self.model = model

    run(store, NotNeeded("hash"))
    with pytest.raises(ZeroDivisionError):
        run(store, NotNeeded("another"))


def test_an_empty_index_needs_no_model(store):
    class NotNeeded:
        model = "x"

    assert 0 == run(store, NotNeeded()).embedded
    assert not (READERS["claude"].home() / "projects").exists()


def test_embedding_in_steps_ends_the_same(store, monkeypatch):
    for number in range(5):
        claude_log(f"{number:08}-1111-4111-8111-111111111111", f"/work/{number}", f"question {number}", "word " * 400)
    monkeypatch.setattr(pipeline, "EMBED_ROWS", 2)
    report = run(store, HashEmbedder())

    assert (store.counts().chunks, 0) == (report.embedded, report.waiting)


def test_a_forgotten_session_is_not_read(store):
    claude_log(ONE, "/work/a", "upload with retries", "done")
    codex_log(TWO, "/work/a", "download with retries", "done")
    log_changes.add_forgotten("claude", ONE, "2026-01-01T00:00:00Z")

    report = run(store, HashEmbedder())

    assert [TWO] == words(store, "retries")
    assert (1, 1, 1) == (report.read, report.sessions, store.counts().sessions)
    assert not export_path("claude", ONE).exists()
