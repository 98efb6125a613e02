"""What an earlier version has left on a machine works with this one: index, register, branches, snapshots and hooks.

``tests/fixtures/before/home.tgz`` is a home in which that version has indexed the demo's sessions, branched one, forked
it, cut another, and set up its hooks. All of it names its own path, so it is unpacked there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

HOME = Path("/tmp/smart-fork-of-before/home")  # noqa: S108 - the path is part of what is tested
PACKED = Path(__file__).resolve().parents[1] / "fixtures/before/home.tgz"
INTENT, ANSWER = (
    "let the downloader retry with backoff when the network is shaky",
    "70f1a07f-1a59-41fc-af14-ca651da4b1a0",
)
CUT = "e0c535ac-dfda-4765-b8e6-95609e92f079"

Run = Callable[..., Any]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="its paths are Linux's: elsewhere /tmp leads to another place"
)


@pytest.fixture
def run() -> Iterator[Run]:
    """A command in the home of before; what it prints as JSON."""
    with FileLock("/tmp/smart-fork-of-before.lock", mode=0o666):  # noqa: S108 - as above
        shutil.rmtree(HOME.parent, ignore_errors=True)
        HOME.parent.mkdir(mode=0o700)
        with tarfile.open(PACKED) as packed:
            packed.extractall(HOME.parent, filter="data")
        env = {"PATH": os.environ["PATH"], "HOME": str(HOME), "SMART_FORK_HOME": str(HOME / ".smart-fork")}
        env |= {"SMART_FORK_PRELOAD": "off", "SMART_FORK_BACKGROUND": "0"}  # nothing goes on in a home that is removed

        def run(*words: str) -> Any:
            command = [sys.executable, "-m", "smart_fork", *words, "--json"]
            done = subprocess.run(
                command, env=env, cwd=HOME / "repos/parcel", capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        yield run
        shutil.rmtree(HOME.parent)


def test_its_index_answers_and_nothing_is_embedded_again(run):
    report = run("index", "run")
    found = run("find", INTENT)

    assert (0, 11) == (report["embedded"], report["index"]["sessions"])
    assert found["results"][0]["title"].startswith("Retry with backoff in the uploader")
    assert found["index"]["embedded"] == found["index"]["chunks"]


def test_its_branch_and_its_worker_are_known(run):
    (worker,) = run("active", "--include-closed")["workers"]
    family = run("lineage", ANSWER)

    assert ("claude", "do the same for the uploader") == (worker["agent_type"], worker["prompt"])
    assert 2 == json.dumps(family).count('"title": "Retry with backoff in the uploader')


def test_a_cut_that_it_has_made_can_be_undone(run):
    log = HOME / f".claude/projects/-tmp-smart-fork-of-before-home-repos-parcel/{CUT}.jsonl"
    cut = log.read_bytes()

    (snapshot,) = run("excise", "rollback", "--list")["snapshots"]
    run("excise", "rollback", snapshot["id"])

    assert len(log.read_bytes()) > len(cut)
    assert 46 == len(log.read_bytes().splitlines())


def test_its_hooks_are_seen_and_taken_out_to_the_byte(run):
    settings = HOME / ".claude/settings.json"
    assert b"smart_fork.hooks claude" in settings.read_bytes()

    run("setup", "hooks", "--remove")

    assert (HOME / "settings-before.json").read_bytes() == settings.read_bytes()
    assert not (HOME / ".codex/hooks.json").exists()
