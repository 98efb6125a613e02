"""Tests of headlines, which say in every list what a session did: with real git, and logs as the agents write them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import apsw
import pytest

from indexer import kept_logs
from indexer.refresh import complete
from indexer.safe_files import index_db
from indexer.store.damage import open_sound
from smart_fork import read
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.session_picker import rows_for
from smart_fork.excise import Request, cut
from smart_fork.finding import recent
from smart_fork.finding.candidates import Candidate
from smart_fork.finding.index_access import opened
from smart_fork.finding.session_hints import line_of
from smart_fork.page.search_page import session_lines
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.excise.test_traces import everything, indexed
from tests.smart_fork.mcp_client import answer
from tests.smart_fork.world import Did, WordsModel, World
from tests.support.cases import thorough_except_first

SUBJECT = "Publish the quokkacask from the release job"


def committing(folder: Path, subject: str, *, named: bool = True) -> Did:
    """Return a call that commits, with git's output. The subject is `named` in the call, or only in a file."""
    words = ["git", "commit", "--allow-empty", "-F", "-"]
    said = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True, input=subject).stdout
    message = f"-m {json.dumps(subject)}" if named else "-F message.txt"
    return Did("Bash", {"command": f"git commit --allow-empty {message}"}, said)


@pytest.fixture(params=["claude"])
def session(request, world: World, shop) -> str:
    """Write a session that does not name its topic until it commits."""
    return world.worked(
        request.param, shop, "> 8", "What of it?", "> ship it", committing(shop, SUBJECT), "It is published.",
        "> thanks", "You are welcome.",
    )  # fmt: skip


def headlines(limit: int = 9) -> list[str]:
    return [one.headline or one.title for one in recent.list_recent("all", None, limit, everywhere=True).sessions]


@pytest.mark.parametrize(
    "asked",
    thorough_except_first(
        ["whoami", "what does the job do?", "/review", "review this", "can you review the changes of the branch"]
    ),
)
@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_the_subject_of_its_last_commit_is_the_headline_of_a_session_whose_title_names_no_work(
    world: World, shop, agent, asked
):
    told = world.worked(
        agent, shop, f"> {asked}", committing(shop, "Draw the parcel map"), "> go on", committing(shop, SUBJECT), "done"
    )

    (hit,) = world.find(SUBJECT, shop)["results"]

    assert (told, SUBJECT) == (hit["session_id"], hit["headline"])
    assert asked == hit["title"]


@pytest.mark.parametrize("last", thorough_except_first(["fix tests", "8"]))
def test_a_subject_that_names_no_work_gives_way_to_the_one_before_it(world: World, shop, last):
    world.worked("claude", shop, "> 8", committing(shop, SUBJECT), committing(shop, last), "done")

    assert [SUBJECT] == [hit["headline"] for hit in world.find(SUBJECT, shop)["results"]]


def test_without_a_commit_it_is_the_first_prompt_that_names_work(world: World, shop):
    world.claude(shop, "is it red?", "Yes", "draw the parcel map", "It is drawn", "write about quokkas", "Written")

    assert ["draw the parcel map"] == [hit["headline"] for hit in world.find("write about quokkas", shop)["results"]]


def test_a_title_that_names_work_stays(world: World, shop):
    world.worked("claude", shop, "> draw the parcel map", committing(shop, SUBJECT), "done")

    (hit,) = world.find(SUBJECT, shop)["results"]
    assert ["draw the parcel map"] * 2 == [hit["title"], hit["headline"]]
    assert "headline" not in recent.list_recent("all", str(shop), 9).as_json()["sessions"][0]


def test_every_list_has_the_same_headline(world: World, shop, session, run):  # noqa: F811
    indexed()
    (listed,) = recent.list_recent("all", str(shop), 9).sessions

    assert ["ship it", SUBJECT] == [listed.title, listed.headline]
    assert [[SUBJECT]] * 2 == [[one.headline.partition(" (")[0] for one in rows_for(words)] for words in ("", SUBJECT)]
    assert [SUBJECT] == [one.title for one in session_lines([listed])]
    assert SUBJECT in run("list").out
    assert SUBJECT in run("find", "publish the quokkacask").out.splitlines()[0]
    assert f"# {SUBJECT}" == run("show", session).out.splitlines()[0]
    assert SUBJECT == read(session).as_json()["headline"]


def test_a_model_is_told_the_headline_by_recall_and_by_the_list(world: World, shop, session):
    indexed()
    with opened() as store:
        (row,) = store.find_sessions(session)
    known = Candidate(row, 0.9, None, "", (), None, (row,), None)

    assert f'"{SUBJECT}", last active' in line_of(known)
    assert SUBJECT == answer(world, "list_sessions", project_path=str(shop))["sessions"][0]["headline"]


@pytest.mark.parametrize(
    "subject",
    thorough_except_first(
        [
            "<script>alert(1)</script> of the quokka",
            "\x1b[2J\x1b]0;owned\x07 clears the quokka",
            "--help the quokka $(id)",
        ]
    ),
)
def test_a_hostile_subject_is_text(world: World, shop, subject, run):  # noqa: F811
    world.worked("claude", shop, "> 8", committing(shop, subject), "done")
    indexed()

    (line,) = (one for one in run("list").out.splitlines() if "quokka" in one)
    assert [False, False] == ["\x1b[2J" in line, "\x07" in line]


def test_show_and_explain_name_the_files_that_were_edited_most(world: World, shop, run):  # noqa: F811
    written = {"file_path": str(shop / "cask.py"), "content": "first = 'quokka'\nsecond = 'parcel map'\n"}
    session = world.worked("claude", shop, "> 8", Did("Write", written), committing(shop, SUBJECT), "done")
    indexed()

    assert ("cask.py",) == read(session).edited_files
    assert "Edited most: cask.py" in run("show", session).out
    assert "edited cask.py" in run("find", "quokkacask", "--explain").out


@pytest.mark.usefixtures("command_model")
@pytest.mark.parametrize("named", [True, False])
def test_a_cut_of_the_exchange_that_committed_takes_the_subject_out_of_every_byte_of_ours(
    world: World, shop, monkeypatch, named
):
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    made = committing(shop, SUBJECT, named=named)
    session = world.worked("claude", shop, "> 8", "What of it?", "> ship it", made, "It is there.", "> thanks", "Bye.")
    indexed()
    assert [b"quokkacask" in everything(), SUBJECT] == [True, headlines()[0]]

    done = cut(Request(session, "2-5", force=True))

    assert not [one for one in done["remains"] if "snapshot" not in one]
    assert b"kacask" not in everything()
    assert ["8"] == headlines()
    assert [] == [hit for hit in world.find("quokkacask", shop)["results"] if "quokkacask" in json.dumps(hit)]


def test_a_masked_headline_never_shows_a_secret(world: World, shop):
    secret = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    world.worked("claude", shop, "> 8", committing(shop, f"Publish the cask with {secret}"), "done")

    (hit,) = world.find("publish the cask", shop)["results"]
    assert "Publish the cask" in hit["headline"]
    assert secret.encode() not in everything()


def test_an_older_index_gets_its_headlines_and_keeps_its_vectors(world: World, shop, session):
    indexed()
    with apsw.Connection(str(index_db())) as db:
        db.execute("ALTER TABLE sessions DROP COLUMN headline; UPDATE files SET version = '27.7.15.2'")
        db.execute("PRAGMA user_version = 20")
    model = WordsModel()

    with open_sound(index_db()) as store:
        complete(store, READERS, model, patience=5)

    assert [] == model.asked
    with opened() as store:
        assert [SUBJECT] == [row.headline for row in store.find_sessions(session)]


def test_a_session_whose_log_is_gone_keeps_its_headline(world: World, shop, session):
    indexed()
    world.log_of(session).unlink()
    with open_sound(index_db()) as store:
        store.set_meta("renewed", "")
        complete(store, READERS, WordsModel(), patience=5)

    with opened() as store:
        assert [SUBJECT] == [row.headline for row in store.find_sessions(session)]
    assert not list(kept_logs.copies())
