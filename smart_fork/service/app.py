"""The service's routes: MCP, hooks, recall, the state of indexing, health."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from indexer.unchecked import json_in
from smart_fork.agents import AGENTS
from smart_fork.errors import SmartForkError
from smart_fork.hooks.receive import receive
from smart_fork.page import views
from smart_fork.page.worker_views import LIVE
from smart_fork.registry.workers import Registry
from smart_fork.retrieval.before_edit import Edit, Origin, origin_of
from smart_fork.retrieval.errors import end_of
from smart_fork.retrieval.recall import FirstPrompt, recalled
from smart_fork.server.bodies import refusing
from smart_fork.service.guard import MAX_BODY, WITH, Doors, Key
from smart_fork.system.processes import Processes
from smart_fork.system.release import own_version

if TYPE_CHECKING:
    from indexer.embedder import Embedder

#: A client's session of MCP ends when it has neither asked nor listened for so long; each holds its last answer.
SESSION_SECONDS = 600.0
MAX_SESSIONS = 1000
#: As addresses name them; what the agents call them.
_EVENTS = {
    "session-start": "SessionStart",
    "user-prompt-submit": "UserPromptSubmit",
    "notification": "Notification",
    "stop": "Stop",
    "session-end": "SessionEnd",
}
#: Need no token, are no work, and tell nobody's secret.
PUBLIC = ("/healthz",)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Work:
    """What the routes call: the model, a test question, the state of indexing, and the pending version."""

    embedder: Embedder
    question: Callable[[], object]
    status: Callable[[], Mapping[str, object]]
    restart: Callable[[], Mapping[str, str] | None] = lambda: None


def application(
    mcp: MCPServer[Any], work: Work, page: views.Page
) -> tuple[Starlette, Doors]:  # fmt: skip
    """Return the application and, for the guard around it, which routes are open to whom."""

    async def healthz(request: Request) -> Response:
        if request.scope.get(WITH) is not Key.TOKEN:
            return JSONResponse({"ok": True})  # it lives: for more, a question must be asked
        problem = await anyio.to_thread.run_sync(partial(_problem, work.question))
        facts = {"ok": problem is None, "problem": problem, "indexing": _how(work.status())}
        return JSONResponse(facts, 200 if problem is None else 503)

    async def recall(request: Request) -> Response:
        first = FirstPrompt.of(await _object(request) or {})
        if first is None:
            return JSONResponse({"error": "agent, session_id, directory and prompt"}, 400)
        try:
            found = await anyio.to_thread.run_sync(partial(recalled, first, work.embedder))
        except (SmartForkError, OSError) as error:
            log.warning("nothing is recalled: %s", error)
            return JSONResponse({"error": "it cannot be looked up"}, 503)
        return JSONResponse({"line": found and found.line, "session_id": found and found.session_id})

    def at_a_call(ask: Callable[[Edit], Origin | None]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            call = Edit.of(await _object(request) or {})
            if call is None:
                return JSONResponse({"error": "agent, session_id, directory, tool and given"}, 400)
            try:
                found = await anyio.to_thread.run_sync(partial(ask, call))
            except (SmartForkError, OSError) as error:
                log.info("nothing is said at a call: %s", error)
                found = None
            return JSONResponse({"line": found and found.line, "key": found and found.key})

        return answer

    async def status(_: Request) -> Response:
        facts = {"version": own_version(), "indexing": dict(work.status()), "restart": work.restart()}
        return JSONResponse(facts)

    async def hook(request: Request) -> Response:
        agent = next((one.name for one in AGENTS if one.hooks and one.name == request.path_params["agent"]), None)
        body = await _object(request)
        if agent is None or body is None:
            return JSONResponse({"error": "an agent's name in the address, an object in the body"}, 400)
        event = _EVENTS.get(request.path_params["event"])
        told = body | ({"hook_event_name": event} if event else {})
        worker = await anyio.to_thread.run_sync(partial(_receive, agent, told))
        return JSONResponse({"worker_id": worker})

    # The guard has looked at Host and Origin, and knows the names of this service, which need not be loopback's.
    looked_at = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    inner = refusing(
        mcp.streamable_http_app(
            streamable_http_path="/mcp",
            max_request_body_size=MAX_BODY,
            session_idle_timeout=SESSION_SECONDS,
            max_sessions=MAX_SESSIONS,
            transport_security=looked_at,
        ),
        "/mcp",
    )
    inner.router.routes += [
        Route("/healthz", healthz),
        Route("/recall", recall, methods=["POST"]),
        Route("/before-edit", at_a_call(partial(origin_of, processes=Processes())), methods=["POST"]),
        Route("/after-failure", at_a_call(end_of), methods=["POST"]),
        Route("/status", status),
        Route("/api/hooks/{agent}/{event}", hook, methods=["POST"]),
        *page.for_programs(),
    ]
    always = (*PUBLIC, views.WAY_IN)
    programs, streams = tuple(inner.router.routes), ("/mcp", LIVE)
    doors = Doors(always, views.PUBLIC, programs=programs, way_in=views.WAY_IN, streams=streams)
    inner.router.routes += page.routes()
    return inner, doors


def _problem(question: Callable[[], object]) -> str | None:
    """Return what is wrong with the answer to a real question; `None` if nothing is."""
    try:
        question()
    except Exception as error:
        log.exception("a question failed")
        return type(error).__name__
    return None


def _how(indexing: Mapping[str, object]) -> str:
    """Return the state of indexing in one word."""
    if indexing.get("state") in ("off", "stopped"):
        return "off"
    return "failing" if indexing.get("failing") else "ok"


def _receive(agent: AgentName, body: Mapping[str, Any]) -> str | None:
    with Registry() as registry:
        worker = receive(registry, agent, body)
    return worker.id if worker else None


async def _object(request: Request) -> dict[str, Any] | None:
    given = json_in(await request.body())
    return given if isinstance(given, dict) else None
