"""The context of an MCP tool call: its caller, the caller's project, a thread for the work, and progress reports.

All facts about the caller are text from another program. So a session id is only compared with known ids, and a path
counts only if it is a directory.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

import anyio
import anyio.from_thread
import anyio.to_thread
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import InputRequests, ListRootsRequest, ListRootsResult
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from indexer.errors import joined, next_step, what_failed
from indexer.lazy_compilation import dataclass
from smart_fork import config
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.display_text import Stage
from smart_fork.errors import SmartForkError
from smart_fork.server import mcp_tasks
from smart_fork.system import call_context

if TYPE_CHECKING:
    from indexer.transcripts.model import AgentName


@dataclass(frozen=True, slots=True)
class ToolCaller:
    """The caller of a tool: the agent, the session id, and the project's directory. Each is `None` if unknown."""

    agent: AgentName | None
    session_id: str | None
    project: str | None


def identify(
    client: str | None,
    meta: Mapping[str, Any],
    roots: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    *,
    arguments: Mapping[str, Any] | None = None,
) -> ToolCaller:
    """Identify the caller of a tool by facts from one request.

    `client` is the client's name for itself, `meta` the request's metadata, `roots` are the URIs of the client's roots.
    `environment` and `directory` are those of the server's process, and `arguments` those of the tool call.
    """
    agent = agent_of(client)
    candidates = [
        *workspaces(meta),
        *(path_of(root) for root in roots),
        # One agent may have inherited variables from another agent that started it.
        *(environment.get(name) for one in ([agent] if agent else AGENTS) for name in one.project_variables),
        # Daemons are started in "/", which is above all projects and tells nothing.
        str(directory) if directory != Path(directory.anchor) else None,
    ]
    project = next((path for path in candidates if isinstance(path, str) and _is_directory(path)), None)
    if agent is None:
        return ToolCaller(None, AGENTS.caller_session(environment), project)
    named = agent.calling_session(meta, arguments or {}, environment, project)
    return ToolCaller(agent.name, named or AGENTS.caller_session(environment, [agent]), project)


def agent_of(client: str | None) -> Agent | None:
    """Return the agent that an MCP client belongs to, by a part of the client's name; `None` if unknown."""
    name = (client or "").lower()
    signs = [(at, agent) for agent in AGENTS for sign in agent.clients if (at := name.find(sign)) >= 0]
    return min(signs, key=lambda sign: sign[0])[1] if signs else None


def workspaces(meta: Mapping[str, Any]) -> list[str]:
    """Return the directories that a request's metadata names as the agent's workspaces."""
    return [path for agent in AGENTS if agent.caller for path in agent.caller.workspaces(meta)]


def _is_directory(path: str) -> bool:
    try:
        return Path(path).is_absolute() and Path(path).is_dir()
    except (OSError, ValueError):  # a name too long, a NUL
        return False


def path_of(uri: str) -> str | None:
    """Return the path in a ``file:`` URI of this machine; `None` for any other URI."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    ours = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return unquote(parts.path) if ours else None


#: The seconds that a client has to name its roots, and the name of the question for them.
ROOTS_SECONDS, ROOTS = 10.0, "roots"
#: The limit for roots, since each is looked up on the disk.
MAX_ROOTS = 64
T = TypeVar("T")

#: A request, and the roots that its client has named for it.
_named: ContextVar[tuple[object, list[str]]] = ContextVar("named", default=(None, []))


def sent_arguments(ctx: Context[Any, Any]) -> Mapping[str, Any]:
    """Return the arguments that the client has sent with a tool call, without default values."""
    return (ctx.request_context.params or {}).get("arguments") or {}


async def caller_of(ctx: Context[Any, Any]) -> ToolCaller:
    """Return the agent, session and project from which a tool call comes."""
    # Over HTTP, this process's environment and directory are not the agent's.
    where: tuple[Mapping[str, str], Path] = ({}, Path("/")) if _is_http(ctx) else (os.environ, _own_directory())
    roots = await _roots(ctx)
    caller = await in_thread(partial(identify, _client(ctx), _meta(ctx), roots, *where, arguments=sent_arguments(ctx)))
    call_context.calling.set(caller.agent)
    return caller


def without_session_argument(arguments: dict[str, Any], ctx: Context[Any, Any]) -> dict[str, Any]:
    """Return the call's arguments without the one that the agent itself added to name its session."""
    agent = agent_of(_client(ctx))
    its_own = agent.caller.argument if agent and agent.caller else None
    return {name: value for name, value in arguments.items() if name != its_own}


def _client(ctx: Context[Any, Any]) -> str | None:
    """Return the name that the client gave itself in the handshake; `None` before the handshake."""
    params = ctx.request_context.session.client_params
    return params.client_info.name if params is not None else None


def _is_http(ctx: Context[Any, Any]) -> bool:
    return ctx.request_context.request is not None


def _own_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # a worktree that was removed; the client may name another directory
        return Path(os.sep)


async def own_projects(ctx: Context[Any, Any]) -> tuple[call_context.Permitted, ...] | None:
    """Return the projects that the client may read; `None` for all, as on stdin and stdout. Over HTTP they are limited.

    They are the client's roots and workspaces, and the projects in config.toml. The model's arguments cannot add one.
    """
    if not _is_http(ctx):
        return None
    named = [*(path for root in await _roots(ctx) if (path := path_of(root))), *workspaces(_meta(ctx))]
    claimed = [path for path in named if Path(path).is_absolute()]
    return await in_thread(lambda: call_context.permitted(claimed[:MAX_ROOTS], config.allowed_projects()))


def _meta(ctx: Context[Any, Any]) -> Mapping[str, Any]:
    meta = (ctx.request_context.params or {}).get("_meta")
    return meta if isinstance(meta, Mapping) else {}


async def _roots(ctx: Context[Any, Any]) -> list[str]:
    """Return the URIs of the client's MCP roots (directories). The client is asked for them once in each request."""
    request, roots = _named.get()
    if request is ctx.request_context:
        return roots
    given: object = (ctx.input_responses or {}).get(ROOTS)
    if given is None and _knows_roots(ctx):
        # The question belongs to this request, since some clients read nothing else.
        belongs, session = ServerMessageMetadata(related_request_id=ctx.request_id), ctx.request_context.session
        with anyio.move_on_after(ROOTS_SECONDS), suppress(Exception):  # a client may announce roots and refuse them
            given = await session.send_request(ListRootsRequest(), ListRootsResult, metadata=belongs)
    roots = [str(root.uri) for root in given.roots] if isinstance(given, ListRootsResult) else []
    _named.set((ctx.request_context, roots))
    return roots


def roots_question(ctx: Context[Any, Any]) -> InputRequests:
    """Return the question for the roots of an HTTP client that cannot be asked during a call; empty for other clients.

    From the protocol of 2026 on, the call ends with the question, and the client repeats the call with the answer.
    """
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    return {ROOTS: ListRootsRequest()} if modern and _knows_roots(ctx) and _is_http(ctx) else {}


def _knows_roots(ctx: Context[Any, Any]) -> bool:
    return ctx.client_capabilities is not None and ctx.client_capabilities.roots is not None


def project_for(path: str | None, caller: ToolCaller) -> str:
    """Return the project directory that `path` names, relative to the caller's; without a path, the caller's.

    Raises:
        ToolError: The caller's directory is unknown.
    """
    if path and (path.startswith("~") or Path(path).is_absolute()):
        return path
    if caller.project is None:
        raise ToolError("project_path is required: this client names no directory, or it was deleted")
    return str(Path(caller.project, path or "."))


#: The function that is called with the answer of a call that the client cancelled before the answer was there.
unawaited_answer: ContextVar[Callable[[object], None]] = ContextVar("unawaited_answer", default=lambda _answer: None)


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread. Turn expected errors into tool errors, which also say what to do next.

    Raises:
        ToolError: The work was refused, or a file could not be read or written.
    """
    given_up = threading.Event()

    def run() -> T:
        answer = call_context.cancellable(given_up, work)
        if given_up.is_set():
            unawaited_answer.get()(answer)
        return answer

    try:
        return await anyio.to_thread.run_sync(run, abandon_on_cancel=True)
    except SmartForkError as error:
        raise ToolError(joined(error.message, error.hint)) from error
    except OSError as error:
        if call_context.limited():
            raise  # it may name a file of another project
        raise ToolError(joined(what_failed(error), next_step(error))) from error
    finally:
        given_up.set()  # nobody waits any more: the thread goes on up to what cannot be taken back


#: The least and the most seconds between two notifications. Clients end silent calls.
PROGRESS_SECONDS, BEAT_SECONDS = 0.25, 5.0
#: The growth of a notification's number when only time has passed.
STEP = 0.001
Progress = Callable[[str, int, int], None]
Send = Callable[[float, float, str], Awaitable[None]]


class Reporter:
    """Sends one tool call's progress notifications to the client, in the thread of the event loop."""

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self._send, self._clock = send, clock
        self._stage: Stage | None = None
        self._done: dict[str, int] = {}
        self._began = self._told_at = clock()
        self._number = self._total = 0.0
        self._words = ""

    async def tell(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` steps of a stage are done. The client gets the sum over all stages so far."""
        if total == 0:
            return
        now = self._clock()
        current = self._stage
        begins = current is None or current.name != stage
        if current is None or begins:
            current = self._stage = Stage(stage, now, done, done, total)
        grown = begins or done > current.done
        current.done, current.total = done, total
        self._done[stage] = max(done, self._done.get(stage, 0))
        if grown and (begins or done >= total or now - self._told_at >= PROGRESS_SECONDS):
            whole = sum(self._done.values())
            self._words = ""
            await self._say(whole, whole - self._done[stage] + max(total, self._done[stage]))

    async def say(self, number: float, total: float, words: str) -> None:
        """Report that `number` of `total` steps are done. `words` describe the present step."""
        self._words = words
        await self._say(number, total)

    async def beat(self) -> None:
        """Repeat the last notification after each `BEAT_SECONDS` without one, until this coroutine is cancelled."""
        while True:
            await anyio.sleep(max(0.0, self._told_at + BEAT_SECONDS - self._clock()))
            if self._clock() - self._told_at >= BEAT_SECONDS:
                await self._say(self._number, self._total)

    async def _say(self, number: float, total: float) -> None:
        self._told_at = now = self._clock()
        if number <= self._number:
            number = self._number + STEP
        self._number, self._total = number, max(total, number)
        await self._send(self._number, self._total, self._words or self._in_words(now))

    def _in_words(self, now: float) -> str:
        stage = self._stage or Stage("working", self._began, 0, 0, 1)
        return f"{stage.title}: {stage.share(now)}"


_reporter = ContextVar[Reporter]("reporter")
#: Returns the reporter of the current call. Raises `LookupError` outside of a call.
reporter = _reporter.get


async def _report(
    context: Context[Any, Any], task: mcp_tasks.McpTask | None, number: float, total: float, words: str
) -> None:
    if task is not None:
        task.words = words
    if task is None or not task.in_background:
        await context.report_progress(number, total, words)


async def with_progress(context: Context[Any, Any], work: Awaitable[T]) -> T:
    """Wait for a tool call's `work` and return its result, with progress notifications meanwhile."""
    before = _reporter.set(Reporter(partial(_report, context, mcp_tasks.current.get())))
    beat = asyncio.ensure_future(reporter().beat())
    try:
        return await work
    finally:
        beat.cancel()
        _reporter.reset(before)


def progress_callback() -> Progress:
    """Return a function by which a thread reports how many steps of a stage of its work are done."""
    told = reporter()

    def report(stage: str, done: int, total: int) -> None:
        anyio.from_thread.run(told.tell, stage, done, total)

    return report
