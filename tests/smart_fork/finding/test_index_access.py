"""Tests that a thread opens the index once for all its users, and again after it was closed."""

from __future__ import annotations

import threading

import apsw
import pytest

from smart_fork.errors import IndexUnavailable
from smart_fork.finding.index_access import known_index, opened
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from smart_fork.finding.session_library import Library

RETRY, DONE = "add retry with backoff to the uploader", "It retries with backoff now."


def test_who_asks_inside_gets_the_same_and_another_thread_its_own(world):
    others = []

    def other() -> None:
        with opened() as store:
            others.append(store)

    with opened() as store:
        with opened() as inner, known_index() as known:
            assert store is inner is known
        assert store.counts().sessions == 0, "it is still open"
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    assert store is not others[0]
    with opened() as again:
        assert store is not again


def test_damage_that_is_found_inside_is_an_error_of_the_index_for_who_asks_there(world):
    with opened() as store, known_index():
        with pytest.raises(IndexUnavailable), opened():
            raise apsw.CorruptError

        with opened() as still:
            assert still is store


def test_after_a_failure_inside_it_is_opened_again(world):
    with pytest.raises(IndexUnavailable), opened(), opened():
        raise apsw.BusyError

    with opened() as store:
        assert store.counts().sessions == 0


def test_all_questions_of_a_library_share_one_opening_and_one_look_at_the_logs(world, shop, monkeypatch):
    session = world.claude(shop, RETRY, DONE)
    opens, looks = [], []
    from indexer.store.sqlite import Store
    from smart_fork.finding import index_refresh

    made, read = Store.__init__, index_refresh.read_changes
    monkeypatch.setattr(Store, "__init__", lambda self, path: opens.append(path) or made(self, path))
    monkeypatch.setattr(index_refresh, "read_changes", lambda *how: looks.append(how) or read(*how))

    with Library.open(str(shop), Engine(world.model)) as library:
        (hit,) = library.find(FindRequest(RETRY)).results
        evidence = [library.evidence(row, RETRY) for row in library.store.find_sessions(session) for _ in range(2)]
        library.within(FindRequest(RETRY, session=session))

    assert session == hit.session_id
    assert evidence[0] is evidence[1]
    assert (1, 1) == (len(opens), len(looks))


def test_what_found_a_session_is_neither_embedded_nor_weighed_again_for_its_exchanges(world, shop, monkeypatch):
    session = world.claude(shop, RETRY, DONE)
    also = ["uploads that time out", "try again after a failed request"]
    texts, terms = [], []
    from indexer.store.sqlite import Store

    embed, count = world.model.embed, Store.sessions_with
    monkeypatch.setattr(Store, "sessions_with", lambda self, words: terms.append(words) or count(self, words))

    with Library.open(str(shop), Engine(world.model)) as library:
        library.find(FindRequest(RETRY, also=also))
        monkeypatch.setattr(world.model, "embed", lambda given: texts.extend(given) or embed(given))
        asked = len(terms)
        (row,) = library.store.find_sessions(session)
        evidence = library.evidence(row, RETRY, also)

    assert [also[1]] == texts, "the shortest was compared with all sessions"
    assert asked == len(terms)
    with Library.open(str(shop), Engine(world.model)) as library:
        assert evidence == library.evidence(row, RETRY, also)
