"""The service's web application: MCP, hooks and hints, the browser page, the state of indexing, and a health check."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import orjson
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexer.background_indexer import BackgroundIndexer
from indexer.default_embedder import configured_embedder
from indexer.environment import Setting
from indexer.json_values import json_in
from indexer.run_triggers import parsed
from indexer.runs import Freshness
from indexer.shared_embedder import SharedEmbedder
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.excision import snapshots
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.service.after_indexing import Renewal
from smart_fork.cli.service.request_guard import MAX_BODY, WITH, Doors, Guard, Key
from smart_fork.cli.service.token import Token
from smart_fork.errors import SmartForkError
from smart_fork.excise import erasure
from smart_fork.finding.answer import Unsearched
from smart_fork.finding.index_access import opened
from smart_fork.finding.request import FindRequest
from smart_fork.finding.session_hints import HookEvent
from smart_fork.finding.session_library import MODEL_SECONDS, Library, library
from smart_fork.hooks import hint_switch
from smart_fork.page import routes
from smart_fork.page.sign_in import SignIn
from smart_fork.server import Server
from smart_fork.system.json_rpc import RpcMessage
from smart_fork.system.version import own_version
from smart_fork.workers.hook_events import receive
from smart_fork.workers.recovery import recover
from smart_fork.workers.registry import Registry

if TYPE_CHECKING:
    from apscheduler.triggers.base import BaseTrigger

    from smart_fork.finding.session_hints import Hint

#: An MCP session ends if the client sends and listens to nothing for so long: it holds memory.
SESSION_SECONDS = 600.0
MAX_SESSIONS = 1000
#: Events of hooks: the name in a request's path, and the agents' name.
_EVENTS = {
    "session-start": "SessionStart",
    "user-prompt-submit": "UserPromptSubmit",
    "notification": "Notification",
    "stop": "Stop",
    "session-end": "SessionEnd",
}
#: Paths that need no token: they cost little, and reveal nothing.
PUBLIC = ("/healthz",)

log = logging.getLogger(__name__)


def application(
    mcp: MCPServer[Any],
    page: routes.Page,
    question: Callable[[], object],
    indexing: Callable[[], Mapping[str, object]],
    restart: Callable[[], Mapping[str, str] | None] = lambda: None,
) -> tuple[Starlette, Doors]:
    """Return the service's web application, and the rules that say which routes each kind of client may use.

    The health check calls `question`, which makes a test search. `restart` returns the old and the new version if a
    restart after an upgrade is pending.
    """

    async def hint(ask: Callable[[Library, HookEvent], Hint | None], event: HookEvent) -> Hint | None:
        def look_up() -> Hint | None:
            with page.library(event.directory, caller=event.session_id) as library:
                return ask(library, event)

        return await anyio.to_thread.run_sync(look_up)

    async def healthz(request: Request) -> Response:
        if request.scope.get(WITH) is not Key.TOKEN:
            return JSONResponse({"ok": True})  # it lives: for more, a question must be asked
        problem = await anyio.to_thread.run_sync(partial(_problem, question))
        facts = {"ok": problem is None, "problem": problem, "indexing": _indexing_health(indexing())}
        return JSONResponse(facts, 200 if problem is None else 503)

    async def recall(request: Request) -> Response:
        first = HookEvent.of(await _object(request) or {})
        if first is None:
            return JSONResponse({"error": "agent, session_id, directory and prompt"}, 400)
        try:
            found = await hint(Library.recall, first)
        except (SmartForkError, OSError) as error:
            log.warning("nothing is recalled: %s", error)
            return JSONResponse({"error": "it cannot be looked up"}, 503)
        return JSONResponse({"line": found and found.line, "session_id": found and found.key})

    def at_a_call(ask: Callable[[Library, HookEvent], Hint | None]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            told = await _object(request) or {}
            call = HookEvent.of(told)
            if call is None or not call.tool or not isinstance(told.get("given"), Mapping):
                return JSONResponse({"error": "agent, session_id, directory, tool and given"}, 400)
            try:
                found = await hint(ask, call)
            except (SmartForkError, OSError) as error:
                log.info("nothing is said at a call: %s", error)
                found = None
            return JSONResponse({"line": found and found.line, "key": found and found.key})

        return answer

    async def status(_: Request) -> Response:
        facts = {"version": own_version(), "indexing": dict(indexing()), "restart": restart()}
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
        Route("/before-edit", at_a_call(Library.before_edit), methods=["POST"]),
        Route("/after-failure", at_a_call(Library.after_failure), methods=["POST"]),
        Route("/status", status),
        Route("/api/hooks/{agent}/{event}", hook, methods=["POST"]),
        *page.for_programs(),
    ]
    always = (*PUBLIC, routes.WAY_IN)
    programs, streams = tuple(inner.router.routes), ("/mcp", *routes.STREAMS)
    doors = Doors(always, routes.PUBLIC, programs=programs, way_in=routes.WAY_IN, streams=streams)
    inner.router.routes += page.routes()
    inner.add_exception_handler(HTTPStatus.NOT_FOUND, page.lost)
    return inner, doors


def _problem(question: Callable[[], object]) -> str | None:
    """Run the health check's test search. Return the type of its error, or `None`."""
    try:
        question()
    except Exception as error:
        log.exception("a question failed")
        return type(error).__name__
    return None


def _indexing_health(indexing: Mapping[str, object]) -> str:
    """Return "off", "failing" or "ok" for the state of indexing, as the health check reports it."""
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


class Entrance(SignIn):
    """The credentials for the service at `host`: a token for programs; for browsers a cookie, and codes to get one.

    A change of the token makes all cookies and codes invalid.
    """

    def __init__(self, folder: Path, host: str) -> None:
        self.token = Token(self._changed)
        super().__init__(folder, host, self.token)
        self._guards: list[Guard] = []

    def guard(self, app: ASGIApp, names: Sequence[str], doors: Doors) -> Guard:
        """Return a guard of `app` for requests to the hosts `names`. `doors` says which paths each client may use."""
        made = Guard(app, token=self.token, hosts=names, doors=doors, sign_in=self)
        self._guards.append(made)
        return made

    def hang_up(self) -> None:
        """Close all response streams that clients keep open."""
        for guard in self._guards:
            guard.hang_up()

    def _changed(self) -> None:
        self.visits.end()
        self.hang_up()
        self.entries.end()


#: The test search of the health check.
QUESTION = FindRequest("is anybody there", agent_type="all", limit=1)

#: How long a restart waits for an index run. Finished work is kept, and the next run continues from there.
RUN_SECONDS = 3600.0

#: How long the service's end waits for the log that is being read. The whole end takes at most twice as long.
STOP_SECONDS = 1.0


class ServiceParts:
    """The parts of one service: embedding model, MCP server, page and indexer.

    `restart` returns the old and the new version if a restart after an upgrade is pending.
    """

    def __init__(self, restart: Callable[[], Mapping[str, str] | None] = lambda: None) -> None:
        self.model = SharedEmbedder(configured_embedder(background=True), MODEL_SECONDS)
        self.library = partial(library, shared=self.model)
        self._restart = restart

    def application(self, entrance: Entrance) -> tuple[Starlette, Doors]:
        """Return the web application, and the rules for its routes. `entrance` signs browsers in."""
        page = routes.Page(self.library, entrance, lambda: (self.model.state, self._indexing()))
        return application(Server(self.model), page, self._question, self._status, self._restart)

    def start(self) -> None:
        """Load the model, find running workers again, and start the indexer if SMART_FORK_INDEXING is true.

        Also delete old snapshots (logs before a cut), and run pending erasures of cut text.
        """
        self.model.start()
        recover()
        with suppress(OSError):
            snapshots.prune(datetime.now(UTC))
        hint_switch.forget()
        # It waits for whoever is indexing, and nobody waits for it.
        threading.Thread(target=erasure.run_pending, name="erasing", daemon=True).start()
        if Setting.INDEXING.is_on():
            trigger = trigger_of(os.environ.get(Setting.INDEX_CRON))
            self.model.indexer = BackgroundIndexer(READERS, self.model, trigger, opened=opened, after=Renewal().soon)
            self.model.indexer.start()
        else:
            log.warning("smart_fork indexes only when it is asked: SMART_FORK_INDEXING is not set to true")

    def stop(self) -> None:
        """Stop the indexer and the model. Finished embeddings are kept."""
        if self.model.indexer is not None:
            self.model.indexer.stop(0.0)
        self.model.close()
        if self.model.indexer is not None:
            self.model.indexer.stop(STOP_SECONDS)

    def idle(self, waited: float) -> bool:
        """Return True if a restart need not wait for indexing: none runs, or it waited too long (`waited` seconds)."""
        indexing = self._indexing()
        return indexing is None or waited >= RUN_SECONDS or indexing.state != "indexing"

    def _question(self) -> None:
        with self.library(everywhere=True) as known:
            answer = known.find(QUESTION)
        if isinstance(answer, Unsearched):
            raise RuntimeError(answer.message)  # noqa: TRY004 - no wrong type, but no index

    def _indexing(self) -> Freshness | None:
        return self.model.indexer.status() if self.model.indexer is not None else None

    def _status(self) -> dict[str, object]:
        indexing = self._indexing()
        return indexing.as_json() if indexing else {"state": "off"}


def refusing(app: Starlette, path: str) -> Starlette:
    """Make the MCP route at `path` of `app` refuse request bodies that are no JSON-RPC message. Return `app`."""
    for route in app.router.routes:
        if isinstance(route, Route) and route.path == path:
            route.app = _JsonRpcOnly(route.app)
    return app


class _JsonRpcOnly:
    """A web application that passes JSON-RPC messages on to the MCP route `app`, and refuses other request bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        message = RpcMessage.read(body)
        answer = RpcMessage.refusal(body) if message is None else None
        if answer is not None:
            await Response(answer.line, 400, media_type="application/json")(scope, receive, send)
            return
        if message is not None and message.kind == "request":
            send = _with_id(message.id, send)
        await self._app(scope, _again(body, receive), send)


def _with_id(number: str | int, send: Send) -> Send:
    """Return a `send` function that adds the request's id `number` to error responses: the MCP library omits it."""
    held: list[Message] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            held.append(message)
        elif held:
            error = RpcMessage.of({**orjson.loads(message["body"]), "id": number})
            begun = held.pop()
            MutableHeaders(raw=begun["headers"])["content-length"] = str(len(error.line))
            await send(begun)
            await send({**message, "body": error.line})
        else:
            await send(message)

    return sent


def _again(body: bytes, receive: Receive) -> Receive:
    told: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return told.pop() if told else await receive()

    return received


def trigger_of(text: str | None) -> BaseTrigger:
    """Return the schedule of index runs for a text such as ``15m``; for `None`, or an invalid text, the default one."""
    default = Setting.INDEX_CRON.default
    try:
        return parsed(default if text is None else text)
    except ValueError as error:
        log.warning("%s is not an interval: %r (%s); indexing every %s", Setting.INDEX_CRON, text, error, default)
        return parsed(default)
