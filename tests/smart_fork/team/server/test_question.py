"""The search of a team's sessions: its results, and the users who see them."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest

from indexer.default_embedder import LightEmbedder
from smart_fork.errors import NotFound
from smart_fork.finding.ranking import Parts
from smart_fork.team import wire
from smart_fork.team.searchable_session import passage_hash, searchable_form, vector_space
from smart_fork.team.server import search, sessions
from smart_fork.team.server.database import Database
from smart_fork.team.server.jobs import KINDS, JobWorker
from smart_fork.team.server.postgres_process import JOBS
from smart_fork.team.server.search import _phrasing_evidence, answer_search
from tests.smart_fork.team.server.shared_sessions import INVOICES, LOGIN, UPLOADER, index_all, records_of, share
from tests.smart_fork.team.server.team import new_id
from tests.smart_fork.team.server.test_schema import BY_PROJECT
from tests.support.cases import thorough_except_first

MODEL = LightEmbedder()
SPACE = vector_space(MODEL.model, MODEL.dimensions)
TABLES = ("chunks", "vectors", "placements", "session_words", "lexemes", "offers")


@pytest.fixture
def people(team):
    for name in ("alice", "bob"):
        team.add(name)
    return team


def ask(team, who, question=UPLOADER[0], **more):
    with team.pool.transaction(team.people[who].id) as db:
        return answer_search(db, team.project(who), team.people[who], wire.Search(question=question, **more))


def found(team, who, question=UPLOADER[0], **more):
    return [hit.session.id for hit in ask(team, who, question, **more).hits]


def rows(team):
    """Return the rows that make the team's project searchable."""
    count = "SELECT count(*) FROM {} t JOIN projects p ON p.id = t.project_id WHERE p.key = %s"
    return {table: team.owned.execute(count.format(table), (team.key,)).fetchone()[0] for table in TABLES}


def test_a_teammates_session_is_found_with_the_passage_that_answers(people):
    session = share(people, "alice", UPLOADER, title="Uploads that fail", tags=("net",))
    share(people, "alice", INVOICES)

    told = ask(people, "bob", "what if the network is away while uploading")

    best = told.hits[0]
    assert (session, "Uploads that fail", people.people["alice"].name) == (
        best.session.id,
        best.session.title,
        best.session.owner,
    )
    assert "twice as long after each failure" in best.passage.text
    assert ("user", 0, None, True, 2) == (
        best.passage.role,
        best.passage.turn,
        best.passage.ends,
        best.similar,
        best.turns,
    )
    assert (2, 0, True) == (told.sessions, told.by_words_only, told.embedded)


def test_what_is_pushed_is_found_once_the_worker_has_been_there(people, database, base):
    session = share(people, "alice", UPLOADER, indexed=False)
    assert [] == found(people, "bob")

    others = "DELETE FROM jobs WHERE project_id <> (SELECT id FROM projects WHERE key = %s)"
    people.owned.execute(others, (people.key,))  # what other tests have left to be embedded takes minutes
    with Database(database.conninfo(JOBS, base), 2, JOBS) as background:
        worker = JobWorker(background, {"index": KINDS["index"]})
        while worker.run_next():
            pass

    assert [session] == found(people, "bob")
    waiting = "SELECT count(*) FROM jobs j JOIN projects p ON p.id = j.project_id WHERE p.key = %s"
    assert (0,) == people.owned.execute(waiting, (people.key,)).fetchone()


@pytest.mark.slow
def test_what_is_private_changes_nothing_that_others_are_told(people):
    share(people, "alice", INVOICES)
    share(people, "alice", LOGIN)
    questions = (UPLOADER[0], "retry", "reto", "uploader invoices", "zebra")
    before = [ask(people, "bob", question).model_dump_json() for question in questions]

    own = share(people, "alice", (*UPLOADER, "And a zebra", "A zebra is in."), visibility="private")

    assert before == [ask(people, "bob", question).model_dump_json() for question in questions]
    assert [own] == found(people, "alice", "zebra")[:1]
    assert 3 == ask(people, "alice").sessions
    with people.pool.transaction(people.people["bob"].id) as db:
        for table in TABLES:
            seen = db.execute(
                f"SELECT DISTINCT reach FROM {table} WHERE project_id = %s",  # noqa: S608
                (people.project("bob").id,),
            ).fetchall()
            assert {0} >= {row["reach"] for row in seen}


@pytest.mark.parametrize("way", thorough_except_first(["private", "deleted"]))
def test_a_session_that_is_hidden_is_found_no_more_at_that_moment(people, way):
    other = share(people, "alice", INVOICES)
    before = rows(people)
    session = share(people, "alice", UPLOADER)
    assert found(people, "bob")[0] == session

    with people.pool.transaction(people.people["alice"].id) as db:
        alice = people.people["alice"]
        if way == "private":
            sessions.change(db, people.key, alice, session, wire.SessionChange(visibility="private"))
        else:
            sessions.delete(db, people.key, alice, session)

    assert session not in found(people, "bob")
    assert before == rows(people)
    index_all(people)
    assert session not in found(people, "bob")
    assert (way == "private") == (session in found(people, "alice"))
    assert other in found(people, "bob", INVOICES[0])


def test_who_has_left_a_project_can_still_take_back_what_is_found_there(people):
    session = share(people, "alice", UPLOADER)
    people.owned.execute("DELETE FROM members WHERE user_id = %s", (people.people["alice"].id,))

    with people.pool.transaction(people.people["alice"].id) as db:
        sessions.change(db, people.key, people.people["alice"], session, wire.SessionChange(visibility="private"))

    assert [] == found(people, "bob")


def test_strangers_are_told_the_same_as_of_a_project_that_is_not_there(people):
    people.add("eve", None)
    share(people, "alice", UPLOADER)

    with pytest.raises(NotFound, match="Project not found"):
        people.project("eve")
    with people.pool.transaction(people.people["eve"].id) as db:
        assert [0] * 6 == [
            len(db.execute(f"SELECT 1 FROM {table} WHERE project_id > 0").fetchall())  # noqa: S608
            for table in TABLES
        ]


@pytest.mark.thorough
def test_a_family_is_found_once(people):
    session = share(people, "alice", UPLOADER)
    child = people.branch("bob", session, verb="fork", visibility="public").session.id
    index_all(people)
    share(people, "alice", INVOICES)

    assert 1 == len({session, child} & set(found(people, "bob")))


def test_what_two_sessions_share_is_stored_once_until_the_last_of_them_goes(people):
    session = share(people, "alice", UPLOADER)
    before = rows(people)
    child = people.branch("bob", session, verb="fork", visibility="public").session.id
    index_all(people)
    assert (before["chunks"], before["vectors"]) == (rows(people)["chunks"], rows(people)["vectors"])

    for who, one in (("alice", session), ("bob", child)):
        index_all(people)
        assert before["chunks"] == rows(people)["chunks"]
        with people.pool.transaction(people.people[who].id) as db:
            sessions.delete(db, people.key, people.people[who], one)
    assert dict.fromkeys(TABLES, 0) == rows(people)


GIRAFFES = ("Now the giraffes", "They are long.")


@pytest.mark.parametrize("visibility", thorough_except_first(["public", "private"]))
def test_a_fork_is_found_by_what_is_its_own_and_its_parent_by_the_rest(people, visibility):
    session = share(people, "alice", UPLOADER)
    before = rows(people)
    child = people.branch("bob", session, verb="fork", visibility=visibility).session.id
    share(people, "bob", (*UPLOADER, *GIRAFFES), session=child, old=records_of(*UPLOADER))

    assert [child] == found(people, "bob", "giraffes")
    assert [session] == found(people, "bob", UPLOADER[1])
    assert (visibility == "public") == (child in found(people, "alice", "giraffes"))
    told = ask(people, "bob", "giraffes").hits[0]
    assert (4, 2) == (told.turns, told.passage.turn)
    grown = {table: count - before[table] for table, count in rows(people).items()}
    assert {"chunks": 1, "placements": 1, "vectors": 1, "session_words": 1} == {
        table: grown[table] for table in ("chunks", "placements", "vectors", "session_words")
    }


def test_a_fork_is_found_by_everything_when_its_parent_is_hidden(people):
    session = share(people, "alice", UPLOADER)
    child = people.branch("bob", session, verb="fork", visibility="public").session.id
    share(people, "bob", (*UPLOADER, *GIRAFFES), session=child, old=records_of(*UPLOADER))
    grandchild = people.branch("alice", child, verb="fork", visibility="public").session.id
    index_all(people)

    with people.pool.transaction(people.people["alice"].id) as db:
        sessions.change(db, people.key, people.people["alice"], session, wire.SessionChange(visibility="private"))
    index_all(people)

    assert [child] == found(people, "bob", UPLOADER[1])
    assert [child] == found(people, "bob", "giraffes")
    assert {session, child} >= set(found(people, "alice", UPLOADER[1]))
    assert grandchild not in found(people, "bob", "giraffes")


def test_a_session_that_grows_is_found_by_what_is_new_and_keeps_what_it_had(people):
    session = share(people, "alice", UPLOADER)
    kept = people.owned.execute("SELECT min(id) FROM chunks").fetchone()
    share(
        people, "alice", (*UPLOADER, "Now the giraffes", "They are long."), session=session, old=records_of(*UPLOADER)
    )

    told = ask(people, "bob", "giraffes")
    assert ("They are long." in told.hits[0].passage.text, 4) == (True, told.hits[0].turns)
    assert kept == people.owned.execute("SELECT min(id) FROM chunks").fetchone()
    number = "SELECT sum(chunks), sum(sessions) FROM lexemes l JOIN projects p ON p.id = l.project_id WHERE p.key = %s AND lexeme = ''"
    assert (2, 1) == people.owned.execute(number, (people.key,)).fetchone()


def vectors_of(said, change=lambda vector: vector):
    document = searchable_form(records_of(*said), "claude", new_id(), new_id()).document
    texts = [chunk.text for chunk in document.chunks]
    made = [change(vector).astype(np.float16).tobytes() for vector in MODEL.embed(texts)]
    return {
        "space": SPACE,
        "vectors": [
            {"chunk": passage_hash(text).hex(), "e": base64.b64encode(e).decode()}
            for text, e in zip(texts, made, strict=True)
        ],
    }


def stored(team):
    select = "SELECT e::text FROM vectors v JOIN projects p ON p.id = v.project_id WHERE p.key = %s ORDER BY chunk_id"
    return [np.array(e.strip("[]").split(","), float) for (e,) in team.owned.execute(select, (team.key,))]


def dropped(team):
    return team.owned.execute(
        "SELECT count(*) FROM audit a JOIN projects p ON p.id = a.project_id WHERE p.key = %s AND verb = 'vectors_dropped'",
        (team.key,),
    ).fetchone()[0]


class Chance(random.Random):
    """A random generator: with `value` near 1, one vector of each push is compared; with 0, none."""

    value = 0.9999

    def random(self) -> float:
        return self.value


@pytest.fixture(autouse=True)
def chance(monkeypatch):
    made = Chance(1)
    monkeypatch.setattr(search, "_random", made)
    return made


def test_vectors_of_a_client_are_taken_for_the_passages_that_they_are_of(people):
    nudged = vectors_of(UPLOADER, lambda vector: vector * 1.001)
    share(people, "alice", UPLOADER, vectors=nudged)

    given = np.frombuffer(base64.b64decode(nudged["vectors"][0]["e"]), np.float16)
    assert np.abs(stored(people)[0] - given).max() < 1e-3
    assert (0, 0) == (dropped(people), rows(people)["offers"])


@pytest.mark.parametrize(
    "change",
    [lambda vector: -vector, lambda vector: vector[::-1], lambda vector: vector * 0],
    ids=["turned", "mixed", "none"],
)
def test_vectors_that_lie_are_all_dropped_and_the_audit_says_so(people, change):
    share(people, "alice", UPLOADER, vectors=vectors_of(UPLOADER, change))

    assert 1 == dropped(people)
    (own,) = MODEL.embed([searchable_form(records_of(*UPLOADER), "claude", new_id(), new_id()).document.chunks[0].text])
    assert np.abs(stored(people)[0] - own).max() < 1e-3


def test_vectors_of_a_client_that_chance_does_not_choose_are_not_made_here(people, chance, monkeypatch):
    chance.value = 0.0
    closed = LightEmbedder()
    closed.close()  # it would refuse to embed anything
    monkeypatch.setattr(search, "_embedding_model", lambda: closed)

    share(people, "alice", UPLOADER, vectors=vectors_of(UPLOADER, lambda vector: vector * 1.25))

    (own,) = MODEL.embed([searchable_form(records_of(*UPLOADER), "claude", new_id(), new_id()).document.chunks[0].text])
    assert np.abs(stored(people)[0] - own * 1.25).max() < 1e-3
    assert 0 == dropped(people)


def test_vectors_of_other_texts_and_other_spaces_are_no_ones(people):
    share(people, "alice", UPLOADER, vectors=vectors_of(INVOICES))
    share(people, "alice", INVOICES, vectors=vectors_of(INVOICES) | {"space": "somebody/384"})

    assert (0, 2) == (rows(people)["offers"], len(stored(people)))


@pytest.mark.thorough
def test_sessions_without_vectors_are_counted_until_they_have_some(people, monkeypatch):
    with monkeypatch.context() as without:
        without.setattr(search, "_embedding_model", lambda: None)
        session = share(people, "alice", UPLOADER)
    share(people, "alice", INVOICES)
    assert ([session], 1) == (found(people, "bob", "uploader")[:1], ask(people, "bob").by_words_only)

    share(people, "alice", (*UPLOADER, *LOGIN), session=session, old=records_of(*UPLOADER))

    assert 0 == ask(people, "bob").by_words_only


QUESTIONS = ("'; DROP TABLE chunks; --", '"*:& | !', "\\", "a" * 9_000, "\u202e\ue0f0", "%s %(x)s", "\N{GIRAFFE FACE}")


def test_whatever_is_asked_is_a_question(people):
    share(people, "alice", UPLOADER)

    assert {1} == {ask(people, "bob", question, also=(question[:300], "of")).sessions for question in QUESTIONS}


def test_vectors_of_the_asker_are_compared_and_other_ones_are_made_here(people):
    share(people, "alice", UPLOADER)
    share(people, "alice", INVOICES)
    about = [MODEL.embed(["pdf of an invoice"])[0].astype(np.float16).tobytes()]

    given = ask(people, "bob", "zzz", space=SPACE, e=tuple(about))
    own = ask(people, "bob", "zzz", space="other/3", e=(b"abcdef",))

    nearest = [
        {hit.session.title or hit.passage.text: hit.speaking[0].nearest for hit in told.hits} for told in (given, own)
    ]
    assert max(nearest[0].values()) > 0.5 > max(nearest[1].values())


def test_each_function_of_the_database_names_the_project_of_what_it_reads(owned):
    sources = owned.execute(
        "SELECT p.proname, coalesce(p.prosrc, '') || coalesce(pg_get_function_sqlbody(p.oid), '') FROM pg_proc p"
        " JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang"
        " WHERE n.nspname = 'public' AND l.lanname IN ('sql', 'plpgsql')"
    ).fetchall()
    searching = {name: source for name, source in sources if any(f" {table}" in source for table in BY_PROJECT)}

    assert {
        "unindex",
        "drop_unplaced",
        "to_index",
    } <= searching.keys()
    for name, source in searching.items():
        parts = [
            part
            for statement in source.split(";")
            for part in [statement]
            if any(f"FROM {table}" in part for table in BY_PROJECT)
        ]
        assert all("project_id" in part for part in parts), name


def test_what_speaks_for_a_session_is_told_within_its_bounds_however_it_was_rounded():
    told = _phrasing_evidence(Parts(1.0000000000000002, 1, 1.0000000000000002, 1, 1.0000001, -1.0000001))

    assert (1, 1, 1, 1, 1, -1) == tuple(told.model_dump().values())
