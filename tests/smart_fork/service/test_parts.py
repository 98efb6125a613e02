"""Parts of the service."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from indexer.safe_files import index_db
from smart_fork.agents.excision import snapshots
from smart_fork.cli.service import app
from smart_fork.finding.index_access import opened
from smart_fork.finding.request import FindRequest
from tests.smart_fork.forks import eventually


def test_snapshots_that_have_had_their_time_go_when_the_service_starts(world, shop, monkeypatch):
    """Another cut would delete them, too, but there may never be another one."""
    monkeypatch.setattr(app, "configured_embedder", lambda **_: world.model)
    now = datetime.now(UTC)
    log = world.log_of(world.claude(shop, "question", "answer"))
    snapshots.save(log, "old", now - snapshots.KEPT - timedelta(days=1))
    snapshots.save(log, "new", now)

    service = app.ServiceParts()
    service.start()
    service.stop()

    assert ["new"] == [one.session_id for one in snapshots.snapshots()]


@pytest.fixture
def service(world, monkeypatch):
    """Return a service that ends with the test."""
    monkeypatch.setattr(app, "configured_embedder", lambda **_: world.model)
    service = app.ServiceParts()
    before = set(threading.enumerate())
    yield service
    service.stop()
    for thread in set(threading.enumerate()) - before:
        thread.join(120)  # it would look for the index of the next test


def test_a_service_that_is_told_to_keep_the_index_fresh_indexes_by_itself(world, shop, service, monkeypatch):
    monkeypatch.setenv("SMART_FORK_INDEXING", "true")
    knows = world.claude(shop, "question", "answer")
    service.start()

    eventually(lambda: service._status().get("last_run"))
    with opened() as store:
        assert [knows] == [row.session_id for row in store.find_sessions("")]


@pytest.mark.parametrize("value", [None, "", "false", "0", "off", "perhaps"])
def test_a_service_that_is_not_told_to_indexes_nothing_by_itself(world, shop, service, monkeypatch, value):
    if value is not None:
        monkeypatch.setenv("SMART_FORK_INDEXING", value)
    world.claude(shop, "question", "answer")
    service.start()

    assert {"state": "off"} == service._status()
    assert not {"indexer", "watcher"} & {thread.name for thread in threading.enumerate()}
    assert not index_db().exists()


@pytest.mark.parametrize("value", ["false", "0", "off"])
def test_where_indexing_is_switched_off_a_question_to_the_service_indexes_nothing_either(
    world, shop, service, monkeypatch, value
):
    world.claude(shop, "question", "answer")
    world.find("question", shop)
    monkeypatch.setenv("SMART_FORK_INDEXING", value)
    world.claude(shop, "something else", "another answer")
    service.start()
    with service.library(everywhere=True) as library:
        answer = library.find(FindRequest("something else"))

    assert "switched off" in answer.index.problem
    with opened() as store:
        assert 1 == store.counts().sessions
