"""The queries of a search: SQLite and PostgreSQL give equal answers."""

from __future__ import annotations

import psycopg
import pytest

from indexer.default_embedder import LightEmbedder
from indexer.store.sqlite import Store
from smart_fork.finding.evidence import gather
from smart_fork.finding.query import Query, terms_of
from smart_fork.finding.ranking import weigh
from smart_fork.team.searchable_session import searchable_form, vector_space
from smart_fork.team.server.postgres_process import OWNER
from smart_fork.team.server.search import space
from smart_fork.team.server.team_index import WHOLE_PROJECT, TeamIndex
from tests.indexer.index_inputs import reading_of
from tests.smart_fork.team.server.shared_sessions import INVOICES, LOGIN, UPLOADER, records_of, share
from tests.smart_fork.team.server.team import Team

SAID = {"uploader": UPLOADER, "invoices": INVOICES, "login": LOGIN}
MODEL = LightEmbedder()


class Sqlite:
    """The local index with the sessions."""

    def __init__(self, path):
        self.store = Store(path)
        for name, said in SAID.items():
            document = searchable_form(records_of(*said), "claude", name, name).document
            self.store.save(reading_of(document.session), document)
        self.store.use_model(MODEL.model, MODEL.dimensions)
        waiting = self.store.waiting((), 99)
        made = MODEL.embed([text for _, text in waiting])
        self.store.add_vectors([(id_, vector.tobytes()) for (id_, _), vector in zip(waiting, made, strict=True)])
        self.scope = self.store.scope(None, ("claude",), automated=False)

    def name(self, row):
        return self.store.sessions([row])[row].session_id


class Postgres:
    """The shared index with the sessions."""

    def __init__(self, team, db):
        self.ids = {share(team, "alice", said): name for name, said in SAID.items()}
        with team.pool.transaction() as making:
            number = space(making, vector_space(MODEL.model, MODEL.dimensions))
        self.store = TeamIndex(db, team.project("bob").id, team.people["bob"].id, number)
        self.scope = WHOLE_PROJECT

    def name(self, row):
        return self.ids[self.store.sessions([row])[row].session_id]


@pytest.fixture(scope="module")
def shared(pool, database, base):
    with psycopg.connect(database.conninfo(OWNER, base), autocommit=True) as owned:
        team = Team(pool, owned)
        team.add("alice")
        team.add("bob", "reader")
        with pool.transaction(team.people["bob"].id) as db:
            yield Postgres(team, db)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    kept = Sqlite(tmp_path_factory.mktemp("searchable") / "index.db")
    yield kept
    kept.store.close()


@pytest.fixture(params=["local", "shared"])
def kept(request):
    return request.getfixturevalue(request.param)


def found(kept, table, *terms, limit=9):
    """Return the sessions with these terms, best first, by whole sessions or by passages."""
    hits = kept.store.match_words(table, terms, kept.scope, limit)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    if table == "sessions":
        return [kept.name(hit.row) for hit in hits]
    places = {place.chunk: place.session for place in kept.store.placements([hit.row for hit in hits])}
    return [kept.name(places[hit.row]) for hit in hits]


@pytest.mark.parametrize("table", ["chunks", "sessions"])
@pytest.mark.parametrize(
    ("terms", "names"),
    [
        (['"retry"'], ["uploader"]),
        (['"invoice"'], ["invoices"]),  # by its stem
        (['"failing"'], ["login"]),
        (['"src billing pdf"'], ["invoices"]),  # words next to each other
        (['"billing src"'], []),
        (['"backoff"', '"clock"'], ["login", "uploader"]),
        (['"uploa"*'], ["uploader"]),
        (['"nowhere"'], []),
        ([], []),
    ],
)
def test_words_and_phrases_find_what_has_them(kept, table, terms, names):
    kept.store.sessions_with(terms)

    assert names == sorted(found(kept, table, *terms))


def test_a_word_that_postgresql_leaves_out_of_its_index_is_counted_in_no_session(shared):
    assert {'"the"': 0, '"retry"': 1} == shared.store.sessions_with(['"the"', '"retry"'])


def test_no_more_rows_than_are_wanted_and_the_best_of_them(kept):
    best = found(kept, "sessions", '"uploader"', '"retry"', '"fail"', limit=1)

    assert ["uploader"] == best


def test_nothing_is_found_in_no_part(kept):
    scope = type(kept.scope)()

    assert [] == kept.store.match_words("chunks", ['"retry"'], scope, 9)
    assert [] == kept.store.similarities([vector("retry")], scope).best(9)


@pytest.mark.parametrize("table", ["chunks", "sessions"])
def test_what_each_term_adds_is_what_all_have_together(kept, table):
    terms = ['"uploader"', '"fail"', '"clock"']
    hits = dict(kept.store.match_words(table, terms, kept.scope, 9))
    by_term = kept.store.word_scores(table, terms, kept.scope, hits)

    assert set(terms) == set(by_term)
    total = {row: sum(scores.get(row, 0.0) for scores in by_term.values()) for row in hits}
    assert total == pytest.approx(hits, rel=1e-5)


@pytest.mark.parametrize("table", ["chunks", "sessions"])
def test_of_a_question_of_very_many_words_each_is_looked_for(kept, table):
    words = dict.fromkeys(terms_of(" ".join(text for said in SAID.values() for text in said)))
    terms = [term for term, sessions in kept.store.sessions_with(list(words)).items() if sessions]
    assert len(terms) > 24

    hits = kept.store.match_words(table, terms, kept.scope, 9)
    by_term = kept.store.word_scores(table, terms, kept.scope, [hit.row for hit in hits])
    having = kept.store.having(table, terms, [hit.row for hit in hits])

    assert {term: set(scores) for term, scores in by_term.items()} == having
    assert all(having.values())


def test_how_much_a_word_adds_is_the_same_wherever_the_sessions_are_kept(local, shared):
    terms = ['"uploader"', '"fail"', '"clock"', '"invoices"', '"twice as long"']
    added = []
    for kept in (local, shared):
        hits = kept.store.match_words("sessions", terms, kept.scope, 9)
        scores = kept.store.word_scores("sessions", terms, kept.scope, [hit.row for hit in hits])
        added.append({(term, kept.name(row)): score for term in terms for row, score in scores[term].items()})

    assert added[0] == pytest.approx(added[1], rel=0.25)


def test_how_many_sessions_have_a_term(kept):
    counts = kept.store.sessions_with(['"fails"', '"retry"', '"twice as long"', '"nowhere"', '"upl"*'])

    assert {'"fails"': 1, '"retry"': 1, '"twice as long"': 1, '"nowhere"': 0, '"upl"*': 1} == counts
    assert 3 == kept.store.session_count()


def test_which_rows_have_each_term_in_text_or_title(kept):
    rows = {
        kept.name(hit.row): hit.row
        for hit in kept.store.match_words("sessions", ['"fail"', '"pdf"', '"retry"'], kept.scope, 9)
    }
    terms = ['"fail"', '"utc"', '"nowhere"']

    inside = kept.store.having("sessions", terms, rows.values())
    assert {'"fail"': {rows["login"]}, '"utc"': {rows["login"]}, '"nowhere"': set()} == inside
    titles = kept.store.having("titles", terms, rows.values())
    assert {'"fail"': {rows["login"]}, '"utc"': set(), '"nowhere"': set()} == titles


def vector(text):
    return bytes(MODEL.embed([text])[0].tobytes())


def test_the_nearest_passages_come_first_with_their_cosine_to_each_question(kept):
    questions = ["what time is it in the tests", "paper for customers"]
    near = kept.store.similarities([vector(text) for text in questions], kept.scope)
    best = near.best(9)

    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    assert {2} == {len(one.cosines) for one in best}
    places = {place.chunk: kept.name(place.session) for place in kept.store.placements([one.row for one in best])}
    first, second = (max(best, key=lambda one: one.cosines[n]) for n in (0, 1))
    assert ("login", "invoices") == (places[first.row], places[second.row])
    some = near.of([first.row])
    assert {first.row} == set(some)
    assert some[first.row] == pytest.approx(first.cosines, abs=0.02)


def test_passages_stand_in_order_with_their_texts(kept):
    (hit,) = kept.store.match_words("sessions", ['"invoices"'], kept.scope, 9)
    places = kept.store.placements_of(hit.row)
    texts = kept.store.texts({place.chunk for place in places})

    assert list(range(len(places))) == [place.position for place in places]
    assert "User: Print the invoices as PDF" in texts[places[0].chunk]
    assert [(place.session, place.position, place.chunk) for place in places] == sorted(kept.store.positions([hit.row]))
    assert {hit.row: len(places)} == kept.store.vector_counts([hit.row])
    row = kept.store.sessions([hit.row])[hit.row]
    assert ("claude", "Print the invoices as PDF", 2, 1) == (row.agent, row.title, row.turns, row.prompts)


def test_what_one_session_has_and_another_has_not(kept):
    (one,) = kept.store.match_words("sessions", ['"invoices"'], kept.scope, 9)
    (other,) = kept.store.match_words("sessions", ['"uploader"'], kept.scope, 9)

    assert kept.store.placements_of(one.row) == kept.store.own_passages(one.row, other.row)
    assert [] == kept.store.own_passages(one.row, one.row)


@pytest.mark.parametrize(
    ("question", "best"),
    [
        ("the upload breaks when the network is away, try again", "uploader"),
        ("pdf_writer", "invoices"),
        ("flaky at midnight", "login"),
    ],
)
def test_a_question_is_answered_by_the_same_session(kept, question, best):
    query = Query(question, kept.scope, 5, everywhere=True)

    gathered = gather(kept.store, query, [vector(question)], words=True)
    weighed = weigh(gathered.phrasings)

    assert best == kept.name(max(weighed, key=lambda row: weighed[row].lead))
    assert all(-0.01 <= value <= 1.01 for one in weighed.values() for parts in one.speaking for value in parts)
