"""After any failure or kill, a transcript is the old one or the new one (E-033, E-052, E-057)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from indexer.safe_files import Disk
from smart_fork.agents.excision import snapshots
from smart_fork.excise import Request, cut, load_auto, plan, rollback, writing
from smart_fork.excise.writing import write_lines
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

#: More calls than a write makes.
MANY = 100
#: A process is killed in each, or in each third, the last of them behind all calls.
EVERY = full_or_sample(1, 3)
CALLS = [name for name in vars(Disk) if not name.startswith("_") and name != "link"]


class Breaking(Disk):
    """A disk that runs `breaks` in place of the call of a number. A broken write has written half of its data."""

    def __init__(self, number: int, breaks) -> None:
        self.left = number
        self.breaks = breaks
        self.made: list[str] = []


def _breaking(name: str):
    whole = getattr(Disk, name)

    def call(self, *arguments):
        self.made.append(name)
        self.left -= 1
        if self.left == 0:
            if name == "write":
                os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
            self.breaks()
        return whole(self, *arguments)

    return call


for call_name in CALLS:
    setattr(Breaking, call_name, _breaking(call_name))


def no_space() -> None:
    raise OSError(28, "No space left on device")


def states(path: Path) -> tuple[bytes, bytes]:
    """Return the content of the file before the cut, and after it."""
    before = path.read_bytes()
    cut(Request(str(path), ids=("a3",)))
    after = path.read_bytes()
    path.write_bytes(before)
    return before, after


@pytest.mark.thorough
def test_a_call_that_fails_leaves_the_old_transcript_or_the_new_one(claude_session):
    before, after = states(claude_session)

    for number in range(1, 20):
        disk = Breaking(number, no_space)
        try:
            cut(Request(str(claude_session), ids=("a3",)), disk=disk)
        except OSError:
            # Up to the replacement nothing has happened; what comes behind it, and may fail, is no error.
            assert before == claude_session.read_bytes()
        else:
            assert after == claude_session.read_bytes()
        left = {*claude_session.parent.iterdir()} - {claude_session}
        assert not left or disk.made[-1] == "remove"
        for one in left:
            one.unlink()
        claude_session.write_bytes(before)


def test_every_call_of_a_write_is_tried(claude_session):
    disk = Breaking(MANY, no_space)
    cut(Request(str(claude_session), ids=("a3",)), disk=disk)

    assert set(CALLS) == set(disk.made)
    assert len(disk.made) < 20


CHILD = """
import os, signal, sys
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample
from tests.smart_fork.excise.test_crashes import Breaking
from indexer.safe_files import Disk
from smart_fork.agents.excision import snapshots
from smart_fork.excise import Request, cut
for number in range(1, 20, int(sys.argv[2])):
    child = os.fork()
    if not child:
        cut(Request(sys.argv[1], ids=("a3",)), disk=Breaking(number, lambda: os.kill(os.getpid(), signal.SIGKILL)))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    with open(sys.argv[1], "rb") as file:
        found = file.read()
    print(number, os.WIFSIGNALED(status), found.hex(), flush=True)
    with open(sys.argv[1], "wb") as file:
        file.write(bytes.fromhex(sys.argv[3]))
"""


@pytest.mark.thorough
def test_a_process_that_is_killed_in_any_call_leaves_the_old_transcript_or_the_new_one(claude_session):
    before, after = states(claude_session)

    root = str(Path(__file__).resolve().parents[3])
    done = forkserver.run(
        [sys.executable, "-c", CHILD, str(claude_session), str(EVERY), before.hex()],
        env=os.environ | {"PYTHONPATH": root}, cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip

    rows = [line.split() for line in done.stdout.splitlines()]
    found = [bytes.fromhex(content) for _, _, content in rows]
    killed = [was == "True" for _, was, _ in rows]
    assert {before, after} == set(found)
    changed = [content == after for content in found]
    assert changed == sorted(changed)  # from the replacement on the new one
    assert sum(killed) > 10 / EVERY
    assert not killed[-1]
    claude_session.write_bytes(before)
    cut(Request(str(claude_session), ids=("a3",)))  # what was left behind is in nobody's way
    assert after == claude_session.read_bytes()


def test_a_rollback_that_fails_leaves_what_was_there(claude_session):
    snapshot = cut(Request(str(claude_session), ids=("a3",)))["snapshot"]
    before = claude_session.read_bytes()

    for number in range(1, 20):
        disk = Breaking(number, no_space)
        try:
            rollback(snapshot, disk=disk)
        except OSError:
            assert before == claude_session.read_bytes()
        else:
            break
    else:
        pytest.fail("it never succeeded")


def test_the_notes_of_a_session_say_what_became_of_each_cut(claude_session, monkeypatch):
    """Other versions read the notes, so their words stay."""
    rollback(cut(Request(str(claude_session), ids=("a3",)))["snapshot"])
    monkeypatch.setattr(writing, "write_lines", lambda *_, **__: no_space())
    with pytest.raises(OSError, match="No space"):
        cut(Request(str(claude_session), ids=("a3",)))

    assert ["cut", "rollback", "cut", "failed"] == [one.command for one in snapshots.noted_changes()]
    assert [] == snapshots.cuts(claude_session)


def test_a_cut_of_a_rollout_is_as_safe(codex_session):
    before = codex_session.read_bytes()
    session = load_auto(codex_session)
    planned = plan(session, {"4"})
    gone = {at for at, turn in enumerate(session.turns) if turn.id in planned.gone}

    for number in range(1, 7):
        with pytest.raises(OSError, match="No space"):
            write_lines(session, gone, planned.edits, disk=Breaking(number, no_space))
        assert before == codex_session.read_bytes()
        assert [codex_session] == list(codex_session.parent.iterdir())
