"""What the forms of the page do to workers, as the command line does it."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.masking import Masked, beginning, mask
from indexer.shapes import dataclass
from smart_fork.errors import Usage
from smart_fork.page.board import asked
from smart_fork.text.snippets import printable

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
    from smart_fork.workers.messages import message_worker
    from smart_fork.workers.termination import close_workers

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
