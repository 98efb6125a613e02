"""The search of teammates' sessions: by the command line, by the tools, and without a server."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import smart_fork
from indexer.default_embedder import LightEmbedder
from indexer.store.base import Scope
from smart_fork.errors import ForkRefused
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.query import Query
from smart_fork.finding.request import FindRequest
from smart_fork.finding.search import QuestionEmbeddings
from smart_fork.forking.start import LaunchedWorker
from smart_fork.sharing.tracking import ProjectFolder, Tracking
from smart_fork.team import client, facade
from smart_fork.team.facade import TeamSearch
from smart_fork.team.searchable_session import passage_hash
from smart_fork.team.server import search as server_search
from smart_fork.team.stored_logins import Account, logged_in_account, remember
from tests.smart_fork.forks import choosing
from tests.smart_fork.searches import find_and_fork
from tests.smart_fork.team.server.shared_sessions import INVOICES, UPLOADER, index_all
from tests.smart_fork.world import WordsModel
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

QUESTION = "retry with backoff in the uploader"


def asked_of(directory):
    return Query(QUESTION, Scope(), 5, directory=directory), QuestionEmbeddings(WordsModel(), [QUESTION])


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.setattr(facade, "VECTOR_SECONDS", 60.0)  # however busy the machine is


@pytest.fixture
def shared(alice, bob, team):
    """A session of Alice that Bob may read, and one of Bob about another subject."""
    hers = alice.team("push", alice.world.claude(alice.repository, *UPLOADER), "--public", "--yes")
    bob.world.claude(bob.repository, *INVOICES)
    index_all(team)
    return hers


def test_a_teammates_session_is_among_ones_own_and_says_whose_it_is(shared, bob, team):
    said = bob.do("find", QUESTION, "--json").json
    best, owner = said["results"][0], team.people["alice"].name

    assert {"server", "owner", "session_id"} < best["origin"].keys()
    assert (shared["session_id"], owner) == (best["session_id"], best["origin"]["owner"])
    assert (best["jsonl_path"], best["can_fork"]) == (None, True)
    assert "twice as long after each failure" in best["snippet"]
    assert f"({owner})" in said["notice"]
    assert (1, 0, team.key) == (said["team"]["sessions"], said["team"]["by_words_only"], said["team"]["project"])
    shown = bob.do("find", QUESTION).out
    assert f"shared by {owner}" in shown
    assert "User: User" not in shown


@pytest.mark.parametrize("words", thorough_except_first([[], ["--team"], ["--also", "go on"]]))
def test_the_vectors_of_a_question_are_made_once_and_the_server_makes_none(shared, bob, monkeypatch, words):
    made = []
    monkeypatch.setattr(server_search, "embed_questions", lambda texts: made.append(texts) or [])
    once = LightEmbedder.embed
    monkeypatch.setattr(LightEmbedder, "embed", lambda self, texts: asked.append(tuple(texts)) or once(self, texts))
    asked = []

    best = bob.do("find", QUESTION, *words, "--json").json["results"][0]

    assert (shared["session_id"], True) == (best["session_id"], best["match"]["similarity"] > 0.3)
    assert ([], 1) == (made, sum(QUESTION in texts for texts in asked))


@pytest.mark.parametrize("patience", thorough_except_first([None, 0.0]))
def test_a_question_without_vectors_is_compared_by_those_that_the_server_makes(shared, bob, monkeypatch, patience):
    if patience is None:
        monkeypatch.setattr(facade, "vector_space", lambda *_: "another/384")
    else:
        monkeypatch.setattr(facade, "VECTOR_SECONDS", patience)

    best = bob.do("find", QUESTION, "--team", "--json").json["results"][0]

    assert best["match"]["similarity"] > 0.3


def test_a_push_brings_the_vectors_of_passages_that_are_here_as_they_are_sent(alice, team):
    notes = f"Look at {alice.home}/notes.txt"
    log = alice.world.claude(alice.repository, *UPLOADER, notes, "It says nothing of it.")
    alice.do("index", "run")
    alice.team("push", log, "--public", "--yes")
    select = "SELECT {} FROM {} t JOIN projects p ON p.id = t.project_id WHERE p.key = %s"
    offered = {bytes(row[0]) for row in team.owned.execute(select.format("hash", "offers"), (team.key,))}

    index_all(team)

    texts = [text for (text,) in team.owned.execute(select.format("text", "chunks"), (team.key,))]
    assert {passage_hash(text) for text in texts if UPLOADER[0] in text} == offered
    assert any("Look at ~/notes.txt" in text for text in texts)
    (number,) = team.owned.execute(select.format("count(*)", "vectors"), (team.key,)).fetchone()
    assert len(texts) == number


def test_ones_own_alone_and_the_teams_alone(shared, bob):
    own = bob.do("find", QUESTION, "--no-team", "--json").json
    theirs = bob.do("find", QUESTION, "--team", "--json").json
    verb = bob.team("find", QUESTION)

    assert not any("origin" in hit for hit in own["results"])
    assert "team" not in own
    assert [shared["session_id"]] == [hit["session_id"] for hit in theirs["results"]]
    assert theirs == verb
    assert 3 == bob.do("team", "find", QUESTION, "--min-score", "1").code


def test_who_has_pushed_a_session_finds_it_once_and_sees_that_it_is_shared(shared, alice):
    (hit,) = alice.do("find", QUESTION, "--json").json["results"]

    assert "origin" not in hit
    assert shared["session_id"] == hit["also_remote"]["session_id"]


def test_a_private_session_is_found_by_nobody_else(alice, bob, team):
    pushed = alice.team("push", alice.world.claude(alice.repository, *UPLOADER), "--yes")
    bob.world.claude(bob.repository, *INVOICES)
    index_all(team)

    said = bob.do("find", QUESTION, "--json")
    assert pushed["session_id"] not in said.out
    assert 0 == said.json["team"]["sessions"]


def test_a_project_that_is_not_shared_is_no_error_unless_somebody_asks_for_it(bob):
    bob.world.claude(bob.repository, *INVOICES)
    with bob.here():
        quiet, wanted = TeamSearch(), TeamSearch(wanted=True)
        for one in (quiet, wanted):
            one.begin(*asked_of(bob.home))
        assert ("", "This directory is in no git repository.") == (quiet.answer().error, wanted.answer().error)


@pytest.fixture
def forks(monkeypatch):
    started = []

    def launch(prepared, **_):
        started.append(prepared.spec.source.session_id)
        return LaunchedWorker(prepared.plan(), "process")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", launch)
    return started


def ask(bob, **more):
    with bob.here():
        engine, there = Engine(WordsModel()), TeamSearch()
        return find_and_fork(FindRequest(QUESTION), engine, choosing(**more), bob.repository, elsewhere=there)


@pytest.mark.parametrize("broken", thorough_except_first(["switched off", "damaged"]))
def test_where_nothing_can_be_searched_here_what_the_team_shares_answers_alone(shared, bob, monkeypatch, broken):
    if broken == "switched off":
        monkeypatch.setenv("SMART_FORK_INDEXING", "false")
    else:
        (bob.home / ".smart-fork/index.db").mkdir()

    said = bob.do("find", QUESTION, "--json")
    shown = bob.do("find", QUESTION).err
    alone = bob.do("find", QUESTION, "--no-team", "--json")

    assert (0, [shared["session_id"]]) == (said.code, [hit["session_id"] for hit in said.json["results"]])
    assert (0, 1) == (said.json["index"]["sessions"], said.json["team"]["sessions"])
    assert said.json["index"]["problem"].startswith(alone.json["message"])
    assert "Your own sessions were not searched." in shown
    assert (1, "index_not_available") == (alone.code, alone.json["error"])
    none = bob.do("find", QUESTION, "--json", "--agent", "codex")
    assert (3, 1, False) == (none.code, none.json["team"]["sessions"], "results" in none.json)


def test_where_nothing_can_be_searched_here_or_there_both_are_said(bob, monkeypatch):
    bob.world.claude(bob.repository, *INVOICES)
    monkeypatch.setenv("SMART_FORK_INDEXING", "false")
    with bob.here():
        remember(Account("http://127.0.0.1:9", logged_in_account().user, "sft_" + "x" * 43))  # nobody listens there

    said = bob.do("find", QUESTION, "--json")

    assert (1, "index_not_available", True) == (said.code, said.json["error"], bool(said.json["team_error"]))
    assert client.ASKED_LATER in bob.do("find", QUESTION).err


def test_a_script_finds_reads_and_forks_what_the_team_shares(shared, bob, forks, team):
    with bob.here():
        best = smart_fork.find(QUESTION)[0]
        own = smart_fork.find(QUESTION, team=False)
        told = smart_fork.read(best.session_id)
        rest = smart_fork.read(best.session_id, at=1)
        smart_fork.preview(best.session_id, "go on")
        assert {} == Tracking(ProjectFolder.of(directory=bob.repository)).read().aliases, "to look leaves nothing"
        worker = smart_fork.fork(best.session_id, "go on")

        copy = smart_fork.read(forks[-1])
    assert (shared["session_id"], team.people["alice"].name) == (best.session_id, best.origin.owner)
    assert not [hit for hit in own if hit.origin]
    assert ([*UPLOADER], "team", UPLOADER[1]) == (
        [one.text for one in told.messages],
        told.resolved,
        rest.messages[0].text,
    )
    assert worker.started.resume_session_id == forks[-1] != shared["session_id"]
    assert ([*UPLOADER], "session") == ([one.text for one in copy.messages], copy.resolved)


@pytest.mark.thorough
def test_a_script_merges_what_the_team_shares_with_a_session_of_ones_own(shared, bob, monkeypatch):
    own = bob.world.claude(bob.repository, "retry the downloader with backoff", "It is done twice.")
    specs = []

    def launch(prepared, **_):
        specs.append(prepared.spec)
        return LaunchedWorker(prepared.plan(), "process")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", launch)
    with bob.here():
        merged = smart_fork.merge([shared["session_id"], own], "go on", budget=5_000).started.merged
        (copy,) = Tracking(ProjectFolder.of(directory=bob.repository)).read().aliases.values()

    assert shared["session_id"] == copy.parent_id
    assert [True] == [spec.source.session_id in copy.files[0] for spec in specs]
    assert [own] == [one.session_id for one in merged]


@pytest.mark.thorough
def test_of_what_a_script_forks_in_vain_nothing_is_left(shared, bob, monkeypatch):
    def fork(*_, **__):
        raise ForkRefused("No room.")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", fork)
    with bob.here(), pytest.raises(ForkRefused):
        smart_fork.fork(shared["session_id"], "go on")
    assert {} == bob.tracking()["aliases"]


def test_a_fork_of_a_teammates_session_is_one_of_a_copy_here(shared, bob, forks):
    answer = ask(bob, fork_index=0)

    assert not answer.error
    assert [True] == [one != shared["session_id"] for one in forks]
    assert ("team", 0) == (answer.resolved, answer.forked_session.chosen["forked_index"])
    with bob.here():
        from smart_fork.finding import session_lookup

        assert UPLOADER[1] in str(session_lookup.look_into(session_lookup.locate(forks[0])).turns)


def test_a_dry_run_tells_of_a_teammates_session_and_leaves_nothing(shared, bob):
    before = {path for path in bob.home.rglob("*") if path.is_file() and "logs" not in path.parts}

    seen = bob.do("fork", shared["session_id"], "--in", "process", "--dry-run", "--json", "--", "go on")

    assert (0, "team") == (seen.code, seen.json["resolved"])
    assert seen.json["price"]["tokens"] > 0
    left = {path for path in bob.home.rglob("*") if path.is_file() and "logs" not in path.parts} - before
    assert not [path for path in left if path.suffix == ".jsonl"], left
    assert not bob.tracking()["aliases"]


@pytest.mark.thorough
def test_what_was_written_for_a_start_that_fails_is_gone_again(shared, bob, monkeypatch):
    def fork(*_, **__):
        raise ForkRefused("No room.")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", fork)
    logs = set(bob.home.rglob("*.jsonl"))

    answer = ask(bob, fork_session_id=shared["session_id"])

    assert ("No room.", logs) == (answer.error, set(bob.home.rglob("*.jsonl")))


def test_nobody_elses_session_is_forked_unchosen_unless_that_is_settled(shared, bob, forks):
    refused = ask(bob, auto_fork=True)
    assert ([], f"Nothing was forked: {shared['session_id']} fits best, but it is a teammate's") == (
        forks,
        refused.error,
    )
    assert shared["session_id"] in refused.next_steps[0]

    (bob.home / ".smart-fork/config.toml").write_text("[team]\nauto_fork = true\n")
    assert ("", 1) == (ask(bob, auto_fork=True).error, len(forks))


def test_where_no_server_is_known_nothing_of_the_team_is_imported(tmp_path):
    code = (
        "import sys; sys.argv = ['smart-fork', 'find', 'anything', '--json']\n"
        "from smart_fork.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "light = ()\n"
        "heavy = [one for one in sys.modules if one.startswith(('smart_fork.team', 'smart_fork.sharing', 'httpx'))]\n"
        "print([one for one in heavy if one not in light], file=sys.stderr)\n"
    )
    env = {
        "HOME": str(tmp_path),
        "SMART_FORK_HOME": str(tmp_path / "state"),
        "SMART_FORK_BACKGROUND": "0",
        "PATH": os.environ["PATH"],
    }
    said = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert "[]" == said.stderr.strip().splitlines()[-1]
