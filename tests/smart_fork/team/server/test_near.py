"""The vector graph of a large project finds almost all of the nearest vectors."""

from __future__ import annotations

import numpy as np
import pytest

from indexer.default_embedder import DIMENSIONS
from smart_fork.team.server import jobs
from smart_fork.team.server.postgres_process import OWNER
from smart_fork.team.server.team_index import WHOLE_PROJECT, TeamIndex

LARGE, SHARED, ALICES, BOBS, WANTED, SPACE = 600, 650, 150, 20, 30, 77


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)


class Crowd:
    """A project with vectors that all members may read, and some private ones of two users."""

    def __init__(self, team, conninfo):
        self.team, self.conninfo = team, conninfo
        for name in ("alice", "bob"):
            team.add(name)
        self.project_id = team.project("alice").id
        self.chance = np.random.default_rng(1)
        self.middles = self.chance.normal(size=(40, DIMENSIONS))
        self.vectors = unit(self.near_middles(SHARED + ALICES + BOBS))
        alice, bob = (team.people[name].id for name in ("alice", "bob"))
        self.reach = np.repeat([0, alice, bob], [SHARED, ALICES, BOBS])
        self.put(range(len(self.vectors)))
        team.owned.execute("ANALYZE vectors")

    def near_middles(self, number):
        spread = self.chance.normal(size=(number, DIMENSIONS))
        return self.middles[self.chance.integers(0, len(self.middles), number)] + 0.7 * spread

    def put(self, chunks):
        rows = [(int(one), int(self.reach[one]), str(self.vectors[one].tolist())) for one in chunks]
        self.team.owned.execute(
            "INSERT INTO vectors(project_id, space, chunk_id, reach, e) SELECT %s, %s, u.chunk, u.reach, u.e::halfvec"
            " FROM unnest(%s::bigint[], %s::bigint[], %s::text[]) AS u(chunk, reach, e)",
            (self.project_id, SPACE, *map(list, zip(*rows, strict=True))),
        )

    def take(self, chunks):
        self.team.owned.execute(
            "DELETE FROM vectors WHERE project_id = %s AND chunk_id = ANY(%s)", (self.project_id, [*map(int, chunks)])
        )

    def ask(self, who, *questions, limit=WANTED):
        """Return the nearest passages, and how often the graph was used."""
        person = self.team.people[who].id
        with self.team.pool.transaction(person) as db:
            index = TeamIndex(db, self.project_id, person, SPACE)
            db.execute("SET LOCAL enable_sort = off")  # so few would be compared, each of them
            said = [one.astype(np.float32).tobytes() for one in questions]
            rows = [one.row for one in index.similarities(said, WHOLE_PROJECT).best(limit)]
            looked = db.execute("SELECT pg_stat_get_xact_numscans(to_regclass(%s)) AS n", (self.graph,)).fetchone()
            return rows, looked["n"] or 0

    def exact(self, who, question, limit=WANTED):
        there = np.flatnonzero(np.isin(self.reach, [0, self.team.people[who].id]))
        order = np.argsort(-(self.vectors[there] @ question), kind="stable")[:limit]
        return {int(one) for one in there[order]}

    @property
    def graph(self):
        return f"vectors_near_{self.project_id}_{SPACE}"

    def there(self):
        return self.team.owned.execute(
            "SELECT i.indexrelid, i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass(%s)", (self.graph,)
        ).fetchone()


@pytest.fixture
def crowd(team, database, base):
    made = Crowd(team, database.conninfo(OWNER, base))
    yield made
    made.take(range(len(made.vectors)))
    jobs.update_graphs(made.conninfo, LARGE)
    assert made.there() is None


@pytest.mark.slow
def test_a_large_project_is_looked_up_in_its_own_index_and_nothing_private_or_withdrawn_is_in_it(crowd):
    questions = unit(crowd.near_middles(12))
    for one in questions[:2]:
        assert (crowd.exact("bob", one), 0) == (set((told := crowd.ask("bob", one))[0]), told[1])

    jobs.update_graphs(crowd.conninfo, LARGE)

    found = {who: [crowd.ask(who, one) for one in questions] for who in ("alice", "bob")}
    for who, answers in found.items():
        assert all(looked for _, looked in answers)
        wanted = [crowd.exact(who, one) for one in questions]
        same = [len(all_ & set(rows)) / WANTED for all_, (rows, _) in zip(wanted, answers, strict=True)]
        assert np.mean(same) > 0.97
        own = {int(one) for one in np.flatnonzero(crowd.reach == crowd.team.people[who].id)}
        assert all(all_ & own <= set(rows) for all_, (rows, _) in zip(wanted, answers, strict=True))
        readable = np.isin(crowd.reach, [0, crowd.team.people[who].id])
        assert all(readable[rows].all() for rows, _ in answers)
    assert WANTED < len(crowd.ask("bob", *questions[:2])[0]) <= 2 * WANTED

    best = crowd.ask("bob", questions[0])[0]
    crowd.take(best)
    after, looked = crowd.ask("bob", questions[0])
    assert (WANTED, set(), True) == (len(after), set(after) & set(best), looked > 0)
    crowd.put(best[:1])
    assert best[0] in crowd.ask("bob", questions[0])[0]
    with crowd.team.pool.transaction(crowd.team.add("stranger", None).id) as db:
        stranger = TeamIndex(db, crowd.project_id, crowd.team.people["stranger"].id, SPACE)
        assert [] == stranger.similarities([questions[0].tobytes()], WHOLE_PROJECT).best(WANTED)


@pytest.mark.thorough
def test_an_index_is_kept_made_again_where_it_was_not_finished_and_dropped_with_its_project(crowd):
    jobs.update_graphs(crowd.conninfo, SHARED + 1)
    assert crowd.there() is None  # not large enough

    jobs.update_graphs(crowd.conninfo, LARGE)
    first = crowd.there()
    crowd.take(range(SHARED - LARGE + 50))
    jobs.update_graphs(crowd.conninfo, LARGE)
    assert (first, True) == (crowd.there(), first[1])  # it may be a little smaller

    crowd.team.owned.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s", (first[0],))
    jobs.update_graphs(crowd.conninfo, SHARED // 2)
    again = crowd.there()
    assert (True, True) == (again[0] != first[0], again[1])

    crowd.take(range(SHARED - LARGE // 2 + 1))
    jobs.update_graphs(crowd.conninfo, LARGE)
    assert crowd.there() is None
