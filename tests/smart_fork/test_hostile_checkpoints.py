"""Whoever writes a checkpoint writes all of it: nothing of it runs, names a file, or hides other sessions."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from smart_fork.agents import repository_session_sources
from smart_fork.finding import session_lookup
from tests.smart_fork.checkpoint_repository import LINK, SUBMODULE, THERE, Entry, claude, commit, frozen, jsonl, session
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.world import World, git

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader retries five times"
ALICES = "60309e1e-0000-4000-8000-0000000000a1"
SECOND = "70309e1e-0000-4000-8000-0000000000a2"


@pytest.fixture
def kept(world: World, shop: Path) -> Path:
    """A clone with one checkpoint of Alice's."""
    commit(shop, "a1b2c3d4e5f6", session(ALICES, claude(world, ALICES, RETRY, DONE)), session_id=ALICES)
    return shop


GOOD = "a1b2c3d4e5f6"


def tree(repo: Path, *entries: tuple[str, str, str]) -> str:
    """A tree as git itself would not write it: entries of any name and mode."""
    data = b"".join(f"{mode} {name}\0".encode() + bytes.fromhex(one) for mode, name, one in entries)
    return hash_object(repo, "tree", data)


def hash_object(repo: Path, kind: str, data: bytes) -> str:
    words = ["git", "hash-object", "-t", kind, "-w", "--literally", "--stdin"]
    return subprocess.run(words, cwd=repo, input=data, check=True, capture_output=True).stdout.decode().strip()


def transcript(world: World, **more: object) -> bytes:
    return claude(world, SECOND, "steal the uploader retry", "Stolen", **more)


BAD = {
    "an id that is a path": lambda w: session("../../../../etc/passwd", transcript(w)),
    "an id that is an option": lambda w: session("--version-of-it-all", transcript(w)),
    "an id of another form": lambda w: session("not_an_id_of_claude_code", transcript(w)),
    "no id": lambda w: session("", transcript(w)),
    "an unknown agent": lambda w: session(SECOND, transcript(w), agent="rm -rf"),
    "an agent that is no text": lambda w: session(SECOND, transcript(w), agent=["Codex"]),
    "facts that are no object": lambda w: [Entry("0/metadata.json", b"[1]"), Entry("0/full.jsonl", transcript(w))],
    "facts that are broken": lambda w: [Entry("0/metadata.json", b'{"session_id'), Entry("0/full.jsonl", transcript(w))],
    "facts that are deep": lambda w: [Entry("0/metadata.json", b"[" * 99_999), Entry("0/full.jsonl", transcript(w))],
    "facts that are huge": lambda w: session(SECOND, transcript(w), more="x" * (1 << 20)),
    "no facts": lambda w: [Entry("0/full.jsonl", transcript(w))],
    "no transcript": lambda w: session(SECOND, transcript(w))[::2],
    "an empty transcript": lambda _: session(SECOND, b""),
    "a binary transcript": lambda _: session(SECOND, bytes(range(256)) * 40),
    "a broken transcript": lambda w: session(SECOND, transcript(w)[:99]),
    "a deep transcript": lambda _: session(SECOND, b'{"a":' * 9_999),
    "records that are odd": lambda _: session(SECOND, jsonl([{"type": "user", "message": 1}, {"type": ["x"], "cwd": {}}])),
    "a transcript that is huge": lambda w: session(SECOND, transcript(w) + b" " * 400_000),
    "a directory that is no path": lambda w: session(SECOND, transcript(w, cwd="../../etc")),
    "no directory": lambda w: session(SECOND, transcript(w, cwd="")),
    "a transcript that is a link": lambda w: [*session(SECOND, b"x")[::2], Entry("0/full.jsonl", transcript(w), LINK)],
    "facts that are a link": lambda w: [Entry("0/full.jsonl", transcript(w)), replace(session(SECOND, b"")[0], mode=LINK)],
    "a session that is a link": lambda _: [Entry("0", b"/etc", LINK)],
    "a session that is a submodule": lambda _: [Entry("0", b"1" * 40, SUBMODULE)],
    "a part that is missing": lambda w: [*session(SECOND, transcript(w)), Entry("0/full.jsonl.002", b"{}")],
    "a folder of another name": lambda w: [replace(one, path=f"x/{one.path}") for one in session(SECOND, transcript(w))],
}  # fmt: skip


@pytest.mark.slow
def test_all_that_is_odd_in_checkpoints_is_no_session_and_hinders_no_other(kept, world, run, monkeypatch):  # noqa: F811
    monkeypatch.setattr(repository_session_sources, "_MAX_BYTES", 300_000)
    for number, bad in enumerate(BAD.values()):
        commit(kept, f"b1b2c3d4e5{number:02x}", bad(world))
    before = frozen(kept)

    assert [ALICES] == world.ids("the uploader retry", kept)
    assert {ALICES, SECOND} >= {one["session_id"] for one in json.loads(run("list", "--json").out)["sessions"]}
    assert before == frozen(kept)


@pytest.mark.thorough
@pytest.mark.parametrize("bad", BAD)
def test_what_is_odd_in_a_checkpoint_is_no_session_and_hinders_no_other(bad, kept, world, run, monkeypatch):  # noqa: F811
    monkeypatch.setattr(repository_session_sources, "_MAX_BYTES", 300_000)
    commit(kept, "b1b2c3d4e5f6", BAD[bad](world))
    before = frozen(kept)

    assert [ALICES] == world.ids("the uploader retry", kept)
    assert {ALICES, SECOND} >= {one["session_id"] for one in json.loads(run("list", "--json").out)["sessions"]}
    assert before == frozen(kept)


def test_names_in_trees_are_no_paths(kept, world, home):
    files = session(SECOND, transcript(world))
    blobs = [("100644", one.path.removeprefix("0/"), hash_object(kept, "blob", one.data)) for one in files]
    one = tree(kept, *sorted(blobs, key=lambda entry: entry[1]))
    odd = [tree(kept, ("40000", name, one)) for name in ("..", "0/../../x", "-1", "٠", "0\n", "")]
    below = tree(kept, *(("40000", f"../../{number}", each) for number, each in enumerate(odd)))
    root = tree(kept, ("40000", "..", below), ("40000", "/e", below), ("100644", "ab", blobs[0][2]))
    who = b"Mallory <m@example.com> 1767323045 +0000"
    made = hash_object(kept, "commit", b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (root.encode(), who, who))
    git(kept, "update-ref", "refs/remotes/evil/entire/checkpoints/v1", made)

    assert [ALICES] == world.ids("the uploader retry", kept)
    assert ["checkpoints"] == [path.name for path in (home / ".smart-fork").iterdir() if path.name.startswith("check")]


def test_a_tree_that_git_never_writes_hinders_no_other(kept, world):
    odd = tree(kept, ("40000", "0", hash_object(kept, "tree", b"40000 no end")))
    below = tree(kept, ("40000", "b2c3d4e5f6", odd))
    root = tree(kept, ("40000", "b1", below), ("40000", "c1", hash_object(kept, "tree", b"\0" * 99)))
    who = b"Mallory <m@example.com> 1767323045 +0000"
    made = hash_object(kept, "commit", b"tree %s\nauthor %s\ncommitter %s\n\nx\n" % (root.encode(), who, who))
    git(kept, "update-ref", "refs/remotes/evil/entire/checkpoints/v1", made)

    assert [ALICES] == world.ids(RETRY, kept)


def test_what_is_read_for_a_list_is_bounded(kept, world, monkeypatch):
    monkeypatch.setattr(repository_session_sources, "_MAX_READ", 100)
    assert [] == world.ids(RETRY, kept)
    monkeypatch.undo()


def test_a_branch_that_leads_nowhere_hinders_no_other(kept, world):
    refs = kept / ".git/refs/remotes/gone/entire/checkpoints"
    refs.mkdir(parents=True)
    (refs / "v1").write_text("1" * 40 + "\n")
    blob = hash_object(kept, "blob", b"x")
    git(kept, "update-ref", "refs/remotes/blob/entire/checkpoints/v1", blob)

    assert [ALICES] == world.ids(RETRY, kept)


def test_refs_of_other_names_are_not_read(kept, world):
    data = session(SECOND, transcript(world))
    for ref in ("refs/entire/checkpoints/xx/a1b2c3d4e5f6", "refs/entire/checkpoints/f6/$(touch)/a1b2c3d4e5f6",
                "refs/entire/checkpoints/f6/-version-5f6", "refs/tags/entire/checkpoints/v1", "refs/heads/entire/other"):  # fmt: skip
        commit(kept, "a1b2c3d4e5f6", data, ref=ref)

    assert [ALICES] == world.ids("the uploader retry", kept)


def test_an_author_steers_no_terminal(world, shop, run):  # noqa: F811
    author = b"Al\x1b[31mice\x07\xff\xe2\x80\xae" + b"x" * 5_000
    prompt = "\x1b]0;owned\x07 add"
    commit(
        shop, GOOD, session(ALICES, claude(world, ALICES, RETRY, DONE), prompt=prompt, branch="\x1b[1m"), author=author
    )
    listed = run("list").out

    (hit,) = world.find(RETRY, shop)["results"]
    assert 80 >= len(hit["author"])
    assert {"\x1b", "\x07", "\u202e"}.isdisjoint(hit["author"] + listed + run("find", RETRY).out)


def test_a_transcript_that_claims_another_place_works_here(world, shop, home):
    claimed = str(home / ".ssh")
    commit(shop, GOOD, session(ALICES, claude(world, ALICES, RETRY, f"see {claimed}/id", cwd=claimed)))

    (hit,) = world.find(RETRY, shop)["results"]
    assert str(shop) == hit["working_directory"]
    assert f"see {shop}/id" == session_lookup.read(session_lookup.locate(ALICES)).turns[-1].text


def test_a_transcript_opens_no_log_of_the_person(world, shop):
    mine = world.codex(shop, "my secret plans", "noted")
    base = {"thread_id": mine, "end_ordinal_exclusive": 3, "end_byte_offset": 1}
    session_id = world.codex(THERE, RETRY, DONE, history_base=base)
    log = world.log_of(session_id)
    data = log.read_bytes()
    log.unlink()
    for number, form in enumerate((data, data.replace(b"history_base", b"history\\u005fbase"))):
        commit(shop, f"{number}1b2c3d4e5f6", session(session_id, form, agent="Codex"))
        assert [mine] == world.ids("my secret plans", shop)


def test_nothing_of_the_repository_is_run(kept, world, run, tmp_path):  # noqa: F811
    lost = session(SECOND, transcript(world))
    commit(kept, "b1b2c3d4e5f6", [*lost[::2], Entry("0/full.jsonl", b"lost " * 99)])
    trap = tmp_path / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\n")
    trap.chmod(0o755)
    names = ("core.fsmonitor", "core.pager", "core.sshCommand", "core.alternateRefsCommand", "gpg.program", "diff.external",
             "filter.x.smudge", "filter.x.process", "diff.x.textconv", "uploadpack.packObjectsHook", "credential.helper")  # fmt: skip
    for name in names:
        git(kept, "config", name, str(trap))
    for name, value in (("log.showSignature", "true"), ("remote.origin.url", f"ext::{trap}"), ("remote.origin.promisor", "true"),
                        ("extensions.partialClone", "origin"), ("alias.cat-file", f"!{trap}")):  # fmt: skip
        git(kept, "config", name, value)
    (kept / ".git/info").mkdir(exist_ok=True)
    (kept / ".git/info/attributes").write_text("* filter=x diff=x\n")
    (kept / ".git/hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        shutil.copy(trap, kept / ".git/hooks" / hook)
    blob = subprocess.run(
        ["git", "hash-object", "--stdin"], input=b"lost " * 99, cwd=kept, capture_output=True, check=True
    )
    (tmp_path / "sprung").unlink(missing_ok=True)
    name = blob.stdout.decode().strip()
    (kept / ".git/objects" / name[:2] / name[2:]).unlink()
    before = frozen(kept)

    assert [ALICES] == world.ids(RETRY, kept)
    run("list"), run("show", ALICES)
    assert not (tmp_path / "sprung").exists()
    assert before == frozen(kept)
