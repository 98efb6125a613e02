"""The addresses of the workers: their board, what is told to them, what they have made of the same prompt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from indexer.masking import Masked, beginning, mask
from indexer.shapes import dataclass
from smart_fork.errors import Usage
from smart_fork.page.board import BoardView, asked
from smart_fork.page.desk import Asked, Desk, in_thread
from smart_fork.page.export import side_by_side
from smart_fork.page.renderer import HEADERS, Shown, rendered
from smart_fork.system.processes import Processes
from smart_fork.text.snippets import printable
from smart_fork.workers.comparison import compare
from smart_fork.workers.messages import message_worker
from smart_fork.workers.termination import close_workers

#: How much is repeated of what a worker was told.
_REPEATED = 200


@dataclass(frozen=True, slots=True)
class ToldWorker:
    """What became of a form of a worker's card: `how` is what was done, `text` what it was told."""

    worker_id: str
    name: str
    how: str
    text: Masked
    warnings: tuple[str, ...] = ()


def told(form: Mapping[str, str]) -> ToldWorker:
    """Answer, tell or end a worker, as its card asks.

    Raises:
        SmartForkError: it was not done.
    """
    worker, do, text = (form.get(name, "") for name in ("worker", "do", "text"))
    if not worker:
        raise Usage("Which worker?", "Reload the workers page.")
    said = beginning(printable(mask(text.strip())), _REPEATED)
    if do == "close":
        (closed,) = close_workers([worker], remove_worktree=form.get("worktree") == "yes")
        how = "ended" if closed.closed else "not changed"
        return ToldWorker(closed.worker_id, closed.name, how, mask(""), (closed.note,) if closed.note else ())
    if do.startswith("answer-"):
        number, shown = do.removeprefix("answer-"), form.get("asked", "")
        done = message_worker(worker, number, answer=True, meant=lambda question: asked(question) == shown)
        return ToldWorker(done.worker_id or worker, done.name, done.how, mask(number), done.warnings)
    if do not in ("message", "queue"):
        raise Usage("No such action", "Reload the workers page.")
    done = message_worker(worker, text, queue=do == "queue")
    return ToldWorker(done.worker_id or worker, done.name, done.how, said, done.warnings)


#: Where browsers listen for what the workers do.
LIVE = "/workers/live"
#: So many windows listen at a time, and each so long: a browser connects again by itself.
MOST_LISTENERS, LISTEN_SECONDS = 12, 600.0
#: How often is looked at the workers while anybody listens, and how soon who was one too many asks again.
LOOK_SECONDS, AGAIN_MILLISECONDS = 2.0, 5000
#: Workers that are compared at once.
MOST_COMPARED = 10


class WorkerViews:
    """The routes about workers, and who listens for them."""

    def __init__(self, desk: Desk) -> None:
        self._desk: Final = desk
        self._listeners = 0

    def routes(self) -> list[Route]:
        """All addresses."""
        return [
            Route("/workers", self._desk.page("workers.html", self._workers)),
            Route("/board", partial(self._fragment, "board.html")),
            Route("/now", partial(self._fragment, "now.html")),
            Route("/worker", self._desk.does(told, "/workers?told={form}"), methods=["POST"]),
            Route("/compare", self._compare),
            Route(LIVE, self._live),
        ]

    def _workers(self, _: Asked, asked: Asked) -> Shown:
        form = asked.get("told")
        return {"board": self._desk.board.view(fresh=form is not None), "done": self._desk.kept(form, ToldWorker)}

    async def _fragment(self, template: str, _: Request) -> Response:
        board = await in_thread(self._desk.board.view)
        return rendered(template, {"board": board, "new_form": self._desk.forms.new})

    async def _compare(self, request: Request) -> Response:
        wanted = request.query_params.getlist("worker")
        return await self._desk.shown("compare.html", lambda: compared(wanted))

    async def _live(self, _: Request) -> Response:
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)

    async def _events(self) -> AsyncIterator[bytes]:
        """What changes; who is one too many is told once, and asks again later."""
        if self._listeners >= MOST_LISTENERS:
            yield b"retry: %d\n" % AGAIN_MILLISECONDS + _event(await in_thread(self._desk.board.view))
            return
        self._listeners += 1
        try:
            loop = asyncio.get_running_loop()
            until, known = loop.time() + LISTEN_SECONDS, b""
            while loop.time() < until:
                event = _event(await in_thread(self._desk.board.view))
                yield event if event != known else b": still here\n\n"  # which finds out who is gone
                known = event
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._listeners -= 1


def _event(view: BoardView) -> bytes:
    told = {"asks": view.asks, "running": view.running, "version": view.version}
    return b"data: " + orjson.dumps(told) + b"\n\n"


def compared(wanted: list[str]) -> Shown:
    """These workers side by side, as ``compare`` has them; without any, those of the last fan-out.

    Raises:
        SmartForkError: there is no such worker.
    """
    return side_by_side(compare(list(dict.fromkeys(wanted))[:MOST_COMPARED], Processes(), patch=True))
