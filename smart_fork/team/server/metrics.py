"""The metrics of the server: ``GET /metrics`` in the Prometheus text format, and a log line for each request.

The server's worker processes add up their counts in a common folder. ``PROMETHEUS_MULTIPROC_DIR`` names it, and must
be set before they start.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_fork.errors import WrongVerb
from smart_fork.team.server.auth import Person
from smart_fork.team.server.postgres_process import SystemUser
from smart_fork.team.server.request_handling import PERSON_KEY, Endpoint, ServerContext

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_BYTES_IN_MB = 1_000_000
#: Free space below which the server warns.
LOW_DISK_BYTES = 2_000 * _BYTES_IN_MB
#: The parts of paths that may occur in a request's name. Ids and keys of projects are left out.
_ROUTE_WORDS = frozenset({
    "admin", "audit", "branches", "changes", "have", "healthz", "hello", "login", "logout", "metrics", "push",
    "rewrites", "search", "segments", "sessions", "token",
})  # fmt: skip

REQUESTS = Counter("smartfork_requests", "Requests, by address and status.", ("verb", "status"))
REQUEST_SECONDS = Histogram("smartfork_request_seconds", "Time until an answer was complete.", ("verb",))

log = logging.getLogger(__name__)
#: The log of requests, which is off unless ``--request-log`` turns it on.
requests = logging.getLogger("smart_fork.requests")


@contextmanager
def shared_metrics_folder(account: SystemUser) -> Iterator[None]:
    """Set a temporary folder in which the processes that are started in this context add up their metrics.

    It belongs to the system user `account`, who runs these processes.
    """
    with TemporaryDirectory(prefix="sf-metrics-") as folder:
        if os.geteuid() == 0:
            os.chown(folder, account.uid, account.gid)
        os.environ[_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[_FOLDER]


def verb_of(path: str) -> str:
    """Return a short name for the path of a request, without ids, for the metrics; ``other`` for an unknown path."""
    return next((word for word in reversed(path.split("/")) if word in _ROUTE_WORDS), "other")


class RequestMetrics:
    """An ASGI app that counts and logs the requests to `app`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, sent)
        finally:
            seconds, verb = time.perf_counter() - begun, verb_of(scope["path"])
            REQUESTS.labels(verb, status).inc()
            REQUEST_SECONDS.labels(verb).observe(seconds)
            person = scope.get(PERSON_KEY)
            requests.info(
                "%s %s %s %d ms %s",
                scope["method"],
                verb,
                status,
                round(seconds * 1000),
                person.name if person else "-",
            )


class StorageCollector:
    """A Prometheus collector that reads the database's sizes and the free disk space when metrics are requested."""

    def __init__(self, server: ServerContext) -> None:
        self._server = server

    def collect(self) -> Iterator[GaugeMetricFamily]:
        with self._server.database.transaction() as db:
            row = db.execute(
                "SELECT (SELECT count(*) FROM users WHERE disabled_at IS NULL) AS users,"
                " (SELECT count(*) FROM projects) AS projects,"
                " (SELECT coalesce(sum(bytes), 0)::bigint FROM projects) AS shared_bytes,"
                " (SELECT count(*) FROM jobs WHERE run_after < 'infinity' AND project_id IS NOT NULL) AS waiting_jobs,"
                " (SELECT count(*) FROM jobs WHERE run_after = 'infinity') AS failed_jobs,"
                " pg_database_size(current_database()) AS database_bytes"
            ).fetchone()
        for name, value in (row or {}).items():
            yield GaugeMetricFamily(f"smartfork_{name}", f"{name.replace('_', ' ').capitalize()}.", value)
        if (free := free_bytes(self._server.data)) is not None:
            yield GaugeMetricFamily("smartfork_disk_free_bytes", "Free space where the server keeps its data.", free)


def free_bytes(folder: Path | None) -> int | None:
    """Return the free bytes on the disk of `folder`; `None` if that is unknown."""
    try:
        return None if folder is None else shutil.disk_usage(folder).free
    except OSError:
        return None


def disk_warning(folder: Path | None) -> str:
    """Return a warning if the disk of `folder` is nearly full, else an empty string."""
    free = free_bytes(folder)
    if free is None or free >= LOW_DISK_BYTES:
        return ""
    return f"The disk of the server is nearly full: {free // _BYTES_IN_MB} MB are free"


def metrics(server: ServerContext, _: Request, person: Person) -> Response:
    """Answer ``GET /metrics`` with all metrics. The token must be an admin's."""
    if not person.admin:
        raise WrongVerb("This token is not an admin's.")
    registry = CollectorRegistry()
    if os.environ.get(_FOLDER):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)
    registry.register(StorageCollector(server))
    return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})


ENDPOINTS = (Endpoint("GET", "/metrics", metrics),)
