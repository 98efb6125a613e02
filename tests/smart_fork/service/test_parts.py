"""What the service is made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from smart_fork.excise import snapshots
from smart_fork.service import parts


def test_snapshots_that_have_had_their_time_go_when_the_service_starts(world, shop, monkeypatch):
    """There may never be another cut, which takes them away as well."""
    monkeypatch.setattr(parts, "configured_embedder", lambda **_: world.model)
    now = datetime.now(UTC)
    log = world.log_of(world.claude(shop, "question", "answer"))
    snapshots.take(log, "old", now - snapshots.KEPT - timedelta(days=1))
    snapshots.take(log, "new", now)

    service = parts.Parts()
    service.start()
    service.stop()

    assert ["new"] == [one.session_id for one in snapshots.snapshots()]
