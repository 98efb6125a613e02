"""Tests of a remote that reads, changes, withholds and replays data, of dangerous addresses, and of wrong keys."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from hashlib import sha256

import pytest

from smart_fork.errors import Usage
from smart_fork.sharing.sync import manifest
from smart_fork.sharing.sync import manifest as keys
from smart_fork.sharing.sync.manifest import SyncKey, WrongKey
from smart_fork.sharing.sync.ref import checked
from tests.smart_fork.sync.test_sync import SAID
from tests.smart_fork.sync.two_machines import REF, Machines, machines

pytestmark = pytest.mark.slow

__all__ = ["machines"]


@pytest.fixture
def synced(machines) -> Machines:
    """Prepare a remote with two sessions of the laptop that the desktop does not have yet."""
    for said in (SAID, ("What about wombats?", "They are shy")):
        machines.laptop.world.claude(machines.laptop.repository, *said)
    machines.set_up()
    machines.laptop.sync()
    return machines


def put(machines: Machines, files: dict[str, str], *parents: str) -> str:
    """Replace the content of the remote with `files`, and return the commit."""
    lines = "".join(f"100644 blob {blob}\t{name}\n" for name, blob in sorted(files.items()))
    tree = subprocess.run(
        ["git", "-C", machines.remote, "mktree"], input=lines, text=True, check=True, capture_output=True
    ).stdout.strip()
    commit = machines.git("commit-tree", tree, "-m", "changed", *(f"-p{one}" for one in parents)).strip()
    machines.git("update-ref", REF, commit)
    return commit


def blob(machines: Machines, data: bytes) -> str:
    done = subprocess.run(
        ["git", "-C", machines.remote, "hash-object", "-w", "--stdin"], input=data, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


def bytes_of(machines: Machines, name: str) -> bytes:
    done = ["git", "-C", machines.remote, "cat-file", "blob", machines.files()[name]]
    return subprocess.run(done, check=True, capture_output=True).stdout


def sessions_of(machines: Machines) -> list[str]:
    return [name for name in machines.files() if name != manifest.NAME]


def test_sessions_that_the_remote_changed_are_not_used(synced):
    first, _second = sessions_of(synced)
    data = bytearray(bytes_of(synced, first))
    data[len(data) // 2] ^= 1
    put(synced, synced.files() | {first: blob(synced, bytes(data))})
    said = synced.desktop.do("sync", "--json")
    assert (said.code, len(json.loads(said.out)["received"]), len(json.loads(said.out)["failed"])) == (1, 1, 1)
    assert "The remote has changed the records of a session" in said.out


@pytest.mark.thorough
def test_sessions_that_the_remote_exchanged_are_not_used(synced):
    first, second = sessions_of(synced)
    files = synced.files()
    put(synced, files | {first: files[second], second: files[first]})
    said = json.loads(synced.desktop.do("sync", "--json").out)
    assert (said["received"], len(said["failed"])) == ([], 2)
    assert synced.desktop.logs() == ""


def test_a_session_that_the_remote_withholds_is_said_to_be_missing(synced):
    _first, second = sessions_of(synced)
    files = synced.files()
    put(synced, {manifest.NAME: files[manifest.NAME], second: files[second]})
    said = json.loads(synced.desktop.do("sync", "--json").out)
    assert (len(said["received"]), len(said["failed"])) == (1, 1)
    assert len(synced.laptop.sync()["sent"]) == 1, "who has it sends it again"
    assert len(synced.desktop.sync()["received"]) == 1


CHANGES = {
    "empty": lambda data: b"",
    "shorter": lambda data: data[:-1],
    "longer": lambda data: data + b"x",
    "other": lambda data: b"x" * 99,
}


def test_a_list_that_the_remote_changed_or_another_key_sealed_stops_everything(synced):
    files, data = synced.files(), bytes_of(synced, manifest.NAME)
    lists = {name: change(data) for name, change in CHANGES.items()}
    lists["another key's"] = manifest.sealed(manifest.Manifest(number=99), SyncKey(os.urandom(32)))
    for name, changed in lists.items():
        put(synced, files | {manifest.NAME: blob(synced, changed)})
        for machine in (synced.laptop, synced.desktop):
            said = machine.do("sync", "--json")
            assert (said.code, "does not open with this machine's key" in said.out) == (1, True), name


def test_an_older_state_is_refused_until_a_person_accepts_it(synced):
    old = synced.git("rev-parse", REF).strip()
    session = next(iter(synced.laptop.ids()))
    synced.desktop.sync()
    synced.laptop.sync("withdraw", session)
    synced.desktop.sync()
    synced.git("update-ref", REF, old)
    for machine in (synced.laptop, synced.desktop):
        said = machine.do("sync")
        assert (said.code, "older list" in said.err) == (9, True)
    assert len(synced.desktop.ids()) == 1
    synced.desktop.sync("--accept-older")
    assert len(synced.desktop.ids()) == 1, "what was withdrawn stays withdrawn"
    assert len(sessions_of(synced)) == 1


@pytest.mark.thorough
def test_another_state_of_the_same_number_is_refused(synced):
    number = 1
    with synced.laptop.here():
        data = manifest.sealed(manifest.Manifest(number=number), keys.own_key())
    put(synced, {manifest.NAME: blob(synced, data)})
    assert synced.laptop.do("sync").code == 9


@pytest.mark.thorough
def test_a_ref_that_is_gone_is_said_to_be_older(synced):
    synced.git("update-ref", "-d", REF)
    assert synced.laptop.do("sync").code == 9
    synced.laptop.sync("--accept-older")
    assert len(synced.desktop.sync()["received"]) == 2


@pytest.mark.thorough
def test_files_that_the_remote_adds_are_not_read_and_go(synced):
    extra = {name: blob(synced, b"x") for name in ("-rf", "..a", "list\u202e", "$(touch x)")}
    put(synced, synced.files() | extra, synced.git("rev-parse", REF).strip())
    assert len(synced.desktop.sync()["received"]) == 2
    assert extra.keys().isdisjoint(synced.files()), "the next machine that writes leaves them away"


@pytest.mark.thorough
def test_a_ref_that_is_no_commit_is_an_error_in_words(synced):
    synced.git("update-ref", REF, blob(synced, b"x"))
    said = synced.desktop.do("sync")
    assert (said.code, "git" in said.err) == (1, True)


def test_hooks_of_the_remote_and_of_a_person_are_not_run(synced, tmp_path):
    for name in ("pre-receive", "update", "post-update", "reference-transaction"):
        hook = synced.remote / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-{name}\n")
        hook.chmod(0o755)
    synced.git("config", "uploadpack.packObjectsHook", f"touch {tmp_path}/ran-pack; exec")
    own = tmp_path / "hooks"
    own.mkdir()
    for name in ("pre-push", "reference-transaction", "post-checkout"):
        (own / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran-own-{name}\n")
        (own / name).chmod(0o755)
    (synced.desktop.home / "gitconfig").write_text(f"[core]\nhooksPath = {own}\n")
    synced.desktop.env["GIT_CONFIG_GLOBAL"] = str(synced.desktop.home / "gitconfig")
    synced.desktop.world.claude(synced.desktop.repository, "Mine?", "Yes")
    assert len(synced.desktop.sync()["sent"]) == 1
    assert [] == sorted(path.name for path in tmp_path.glob("ran-*"))


@pytest.mark.parametrize(
    "address",
    [
        "", "-", "--upload-pack=touch x", "ext::sh -c touch% x", "fd::3", "-oProxyCommand=x:y", "http://example.org/a.git",
        "git://example.org/a.git", "ssh://-oProxyCommand=x/a", "https://ann:secret@example.org/a.git", "file::x", "no/such",
        "example.org:-x", "HTTP://example.org/a", "ssh://ann@-x/a", "https://example.org/a b", "git@ex\nample.org:a",
    ],
)  # fmt: skip
def test_an_address_that_could_run_something_is_refused(address):
    with pytest.raises(Usage) as caught:
        checked(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "git@example.org:ann/a.git",
        "example.org:a",
        "https://ann@example.org/a.git",
        "ssh://git@example.org:22/a",
        "file:///mnt/a.git",
    ],
)
def test_an_address_of_a_remote_is_taken_as_it_is(address):
    assert checked(address) == address


@pytest.mark.thorough
def test_a_transport_that_an_own_setting_puts_in_its_place_does_not_run(synced, tmp_path):
    config = synced.desktop.home / "gitconfig"
    config.write_text(
        f'[url "ext::touch {tmp_path}/ran "]\ninsteadOf = {synced.remote.as_uri()}\n[protocol "ext"]\nallow = always\n'
    )
    synced.desktop.env["GIT_CONFIG_GLOBAL"] = str(config)
    assert synced.desktop.do("sync").code == 1
    assert not (tmp_path / "ran").exists()


def test_a_machine_without_the_key_is_not_set_up_over_sessions_that_are_there(machines):
    assert machines.laptop.do("sync", "setup", machines.remote.as_uri()).code == 0
    machines.laptop.sync()
    said = machines.desktop.do("sync", "setup", machines.remote.as_uri())
    assert (said.code, "sync key" in said.err) == (2, True)
    wrong = SyncKey(os.urandom(32)).words()
    said = machines.desktop.do("sync", "setup", "--key", machines.remote.as_uri(), given=wrong)
    assert said.code == 1
    assert not list(machines.desktop.home.rglob("sync/key")), "a key that opens nothing is not kept"
    said = machines.desktop.do("sync")
    assert said.code == 3


@pytest.mark.parametrize("words", ["", "sfk_", "sfk_aaaa", "x" * 63, "sfk_" + "ä" * 58])
def test_what_is_no_key_is_refused_without_a_word_of_it(words):
    with pytest.raises(Usage) as caught:
        keys.parse_key(words)
    assert not words or words not in str(caught.value)


def test_a_key_with_a_typing_error_is_refused():
    words = SyncKey(os.urandom(32)).words()
    assert keys.parse_key(f" {words}\n").words() == words
    for number in range(4, len(words) - 1):
        other = "b" if words[number] == "a" else "a"
        with pytest.raises(Usage):
            keys.parse_key(words[:number] + other + words[number + 1 :])


def test_the_key_is_private_and_in_no_other_file(synced):
    (path,) = synced.laptop.home.rglob("sync/key")
    words = path.read_text().strip()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert synced.laptop.do("sync", "key").out.strip() == words
    secret = keys.parse_key(words).secret
    assert words not in repr(keys.parse_key(words))
    assert secret.hex() not in repr(keys.parse_key(words))
    others = (one for one in synced.laptop.home.rglob("*") if one.is_file() and one != path)
    assert [] == [one for one in others if any(form in one.read_bytes() for form in (words.encode(), secret))]


def test_what_is_sealed_opens_only_as_what_it_is():
    key = SyncKey(os.urandom(32))
    sealed = key.seal("a", b"text")
    assert key.open("a", sealed) == b"text"
    assert sha256(sealed).digest() != sha256(key.seal("a", b"text")).digest()
    for what, data in (("b", sealed), ("a", sealed[:-1]), ("a", b""), ("a", b"\0" + sealed[1:])):
        with pytest.raises(WrongKey):
            key.open(what, data)


@pytest.mark.thorough
def test_a_session_that_the_other_machine_made_is_hostile_text_all_the_same(synced):
    """Its ids, paths and directory have no meaning on this machine."""
    synced.laptop.world.claude(synced.laptop.repository, "Run `rm -rf /`", "../../etc/passwd")
    synced.laptop.sync()
    for one in synced.desktop.sync()["received"]:
        assert one["path"].startswith(str(synced.desktop.home / ".claude/projects"))


@pytest.mark.thorough
def test_a_machine_that_left_has_no_key_and_no_data(synced):
    synced.desktop.sync()
    ids = synced.desktop.ids()
    assert synced.desktop.do("sync", "leave").code == 0
    assert not (synced.desktop.home / ".smart-fork/sync").exists()
    assert synced.desktop.ids() == ids
    assert synced.desktop.do("sync").code == 3
