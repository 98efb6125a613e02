"""The page of workers: the board with live changes, actions on workers, and their comparison."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, beginning, mask
from smart_fork.display_text import printable
from smart_fork.errors import Usage
from smart_fork.page.endpoint_builder import Asked, Endpoints, in_thread
from smart_fork.page.export import side_by_side
from smart_fork.page.renderer import HEADERS, Shown, rendered
from smart_fork.page.worker_board import BoardView, asked
from smart_fork.workers.comparison import compare
from smart_fork.workers.messages import message_worker
from smart_fork.workers.termination import close_workers

#: The characters of a message to a worker that its answer repeats.
_REPEATED = 200


@dataclass(frozen=True, slots=True)
class WorkerActionResult:
    """The result of an action on a worker from its card: `how` it was done, and the `text` that was sent."""

    worker_id: str
    name: str
    how: str
    text: Masked
    warnings: tuple[str, ...] = ()


def act_on_worker(form: Mapping[str, str]) -> WorkerActionResult:
    """Do what a form on a worker's card asks: answer its question, send it a message, or end it.

    Raises:
        SmartForkError: the action failed.
    """
    worker, do, text = (form.get(name, "") for name in ("worker", "do", "text"))
    if not worker:
        raise Usage("Which worker?", "Reload the workers page.")
    said = beginning(printable(mask(text.strip())), _REPEATED)
    if do == "close":
        (closed,) = close_workers([worker], remove_worktree=form.get("worktree") == "yes")
        how = "ended" if closed.closed else "not changed"
        return WorkerActionResult(closed.worker_id, closed.name, how, mask(""), (closed.note,) if closed.note else ())
    if do.startswith("answer-"):
        number, shown = do.removeprefix("answer-"), form.get("asked", "")
        done, said = message_worker(worker, number, answer=True, meant=lambda one: asked(one) == shown), mask(number)
    elif do in ("message", "queue"):
        done = message_worker(worker, text, queue=do == "queue")
    else:
        raise Usage("No such action", "Reload the workers page.")
    return WorkerActionResult(done.worker_id or worker, done.name, done.how, said, done.warnings)


#: The address where browsers listen for changes of workers.
LIVE = "/workers/live"
#: The number of windows that may listen, and for how long. Browsers reconnect by themselves.
MAX_LISTENERS, LISTEN_SECONDS = 12, 600.0
#: The interval of reading the workers while a window listens, and the delay before a rejected window tries again.
LOOK_SECONDS, AGAIN_MILLISECONDS = 2.0, 5000
#: The number of workers in one comparison.
MAX_COMPARED = 10


class WorkerViews:
    """The routes that show workers and act on them. The number of browsers that listen for changes is limited."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints: Final = endpoints
        self._listeners = 0

    def routes(self) -> list[Route]:
        return [
            Route("/workers", self._endpoints.page("workers.html", self._workers)),
            Route("/board", partial(self._fragment, "board.html")),
            Route("/now", partial(self._fragment, "now.html")),
            Route("/worker/{worker}", partial(self._fragment, "fork_worker.html")),
            Route("/worker", self._endpoints.form(act_on_worker, "/workers?told={form}"), methods=["POST"]),
            Route("/compare", self._compare),
            Route(LIVE, self._live),
        ]

    def _workers(self, _: Asked, asked: Asked) -> Shown:
        form = asked.get("told")
        return {
            "board": self._endpoints.board.view(fresh=form is not None),
            "done": self._endpoints.find_result(form, WorkerActionResult),
        }

    async def _fragment(self, template: str, request: Request) -> Response:
        board = await in_thread(self._endpoints.board.view)
        return rendered(template, {"board": board, "new_form": self._endpoints.forms.new}, request.path_params)

    async def _compare(self, request: Request) -> Response:
        wanted = request.query_params.getlist("worker")
        return await self._endpoints.respond("compare.html", partial(_compared, wanted))

    async def _live(self, _: Request) -> Response:
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)

    async def _events(self) -> AsyncIterator[bytes]:
        """Yield a server-sent event for each change of the worker board, to one browser.

        If too many browsers listen, yield one event that tells the browser to reconnect later.
        """
        if self._listeners >= MAX_LISTENERS:
            yield b"retry: %d\n" % AGAIN_MILLISECONDS + _event(await in_thread(self._endpoints.board.view))
            return
        self._listeners += 1
        try:
            loop = asyncio.get_running_loop()
            until, known = loop.time() + LISTEN_SECONDS, b""
            while loop.time() < until:
                event = _event(await in_thread(self._endpoints.board.view))
                yield event if event != known else b": still here\n\n"  # which finds out who is gone
                known = event
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._listeners -= 1


def _event(view: BoardView) -> bytes:
    told = {"asks": view.asks, "running": view.running, "version": view.version}
    return b"data: " + orjson.dumps(told) + b"\n\n"


def _compared(wanted: list[str]) -> Shown:
    """Compare the workers with these ids or names; without any, those of the last fan-out (one prompt to several)."""
    return side_by_side(compare(list(dict.fromkeys(wanted))[:MAX_COMPARED], patch=True))
