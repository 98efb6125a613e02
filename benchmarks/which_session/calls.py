"""Calls of tools with their results, as the readers of logs have them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_SHELLS = {"Bash", "shell", "shell_command", "exec_command", "local_shell", "container.exec"}


class Ran(NamedTuple):
    """A call in a session: what it did as the index has it, the command, what came back, if it failed, and the call as
    the log has it.
    """

    action: str
    command: str
    output: str
    failed: bool
    used: Any


@contextmanager
def _watched(calls: list[tuple[Any, Any]]) -> Iterator[None]:
    """Note what readers read of calls and results."""
    from indexer.transcripts.calls import CallRecorder

    made, given = CallRecorder.call, CallRecorder.result
    known: dict[str, Any] = {}

    def call(self: Any, one: Any, **how: Any) -> Any:
        known[one.id] = (one, done := made(self, one, **how))
        return done

    def result(self: Any, one: Any) -> Any:
        done = given(self, one)
        if one.id in known:
            calls.append((known[one.id], (one, done)))
        return done

    CallRecorder.call, CallRecorder.result = call, result  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        CallRecorder.call, CallRecorder.result = made, given  # type: ignore[method-assign]


def ran_calls() -> Iterator[tuple[Any, list[Ran]]]:
    """Each session with its calls."""
    from indexer.transcripts.actions import status_and_body, succeeded
    from indexer.transcripts.commands import command_of
    from indexer.transcripts.model import Proof
    from smart_fork.agents.log_readers import READERS

    for reader in READERS:
        not_run = getattr(getattr(reader, "tree", None), "not_run", ()) or ()
        for file in reader.discover():
            calls: list[tuple[Any, Any]] = []
            with _watched(calls):
                session = reader.read(file.path).session
            if session is None:
                continue
            ran = []
            for (used, call), (back, result) in calls:
                shell = used.name in _SHELLS and isinstance(used.given, dict) and not call.ours
                sure = succeeded(back.output, said=not back.failed, not_run=not_run) is not None
                failed = shell and ((back.failed and sure) or result.proof is Proof.FAILED)
                line = command_of(used.given) if shell else ""
                ran.append(Ran(call.action, line, status_and_body(back.output)[1], failed, used))
            yield session, ran
