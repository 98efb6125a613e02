"""Other tools as further rows: each in a home of its own, over the same logs and questions."""

from __future__ import annotations

import json

import pytest

from benchmarks import _peers
from benchmarks.which_session import __main__ as program
from benchmarks.which_session import peers as rows
from benchmarks.which_session.labels import questions
from benchmarks.which_session.peers import peers
from benchmarks.which_session.play import Stage, at_home
from benchmarks.which_session.transcripts import transcripts
from tests.benchmarks.which_session.repository import lines, with_five_before
from tests.indexer.index_inputs import HashEmbedder
from tests.support.executables import shebang

pytestmark = pytest.mark.thorough  # of the benchmarks, which no user runs

NAMES_ALL = """
import os, pathlib, sys
home = pathlib.Path(os.environ["HOME"])
(home / "index-of-its-own").write_text("x")
for log in sorted(home.rglob("*.jsonl"), reverse=True):
    print(log.stem[:35])
print("no session of these")
"""
FAILS = "import sys; print('it quotes a transcript', file=sys.stderr); sys.exit(3)"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    repository = with_five_before(tmp_path_factory.mktemp("built") / "harbor")
    for number in range(6, 10):
        repository.worked(
            number,
            20 * number,
            f"Mend how a2.py lifts heavy cargo, part {number}",
            {"a2.py": lines("abcdef"[number - 6])},
        )
    return repository


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Makes a tool the only one there is, and gives the folder that it is installed in."""

    def tool(script: str):
        at = tmp_path / "tools/its-program/bin/its-program"
        at.parent.mkdir(parents=True)
        at.write_text(shebang() + script)
        at.chmod(0o755)
        one = _peers.Peer("a tool", "its-program", lambda *_: ["ask"], _peers.named(r"^(.+)$"), package="none==1")
        monkeypatch.setattr(rows, "PEERS", (one,))
        return tmp_path / "tools"

    return tool


def test_a_tool_is_asked_in_a_home_of_its_own_and_names_candidates(built, tool, tmp_path):
    clone = built.clone()
    known = transcripts(clone)
    stage = Stage(clone, known, tmp_path / "stage")
    with peers(tool(NAMES_ALL), tmp_path / "peers") as (asked, absent), at_home(stage.home, stage.state):
        for moment in stage.moments(questions(clone, known)):
            named = [one.ask(moment) for one in asked]
            assert [sorted(moment.present)] == [sorted(found) for found in named]
    assert "a tool" not in absent
    assert {"cass", "deja"} <= set(absent)
    assert [] == list(stage.home.rglob("index-of-its-own"))
    assert (tmp_path / "peers/its-program/home/index-of-its-own").exists()


@pytest.mark.parametrize("script", [NAMES_ALL, FAILS])
def test_a_tool_that_fails_again_and_again_has_no_row_but_a_reason(built, tool, tmp_path, monkeypatch, script):
    monkeypatch.setattr("indexer.default_embedder.configured_embedder", HashEmbedder)
    monkeypatch.setattr(program, "FOLDER", tmp_path / "stage")
    monkeypatch.setattr(
        "sys.argv",
        ["which_session", str(built.clone().path), "--json", str(tmp_path / "f.json"), "--peers", str(tool(script))],
    )
    program.main()
    told = json.loads((tmp_path / "f.json").read_text())

    assert (script == NAMES_ALL) == ("a tool" in told["tools"])
    assert (script == FAILS) == ("failed 3 times in a row" == told["not asked"].get("a tool"))
    assert "quotes" not in json.dumps(told)


def test_a_tool_that_is_not_installed_is_named_with_its_package(tool, tmp_path):
    tool(NAMES_ALL)
    with peers(tmp_path / "elsewhere", tmp_path / "peers") as (asked, absent):
        assert [] == asked
    assert "not installed (none==1)" == absent["a tool"]
