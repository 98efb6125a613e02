"""The command that the agents run: ``python -P -m smart_fork.hooks AGENT``, with the event as JSON on stdin.

Whatever happens it ends with 0 and does not keep the agent waiting: an agent that a hook fails for stops or complains.
What it hears is written straight into the registry, so nobody has to be up. It says nothing, but for the one line about
a first prompt, an edit or a compaction that a person may have switched on.
"""

from __future__ import annotations

import os
import sys

from smart_fork.hooks import RECALL

#: A prompt may be long; what is longer than this is not an event of an agent.
MAX_BYTES = 16 << 20
#: How long another process that writes is waited for.
PATIENCE_MILLISECONDS = 1_000
#: Each call that replaces text has one of these; a command of a shell has none.
_EDITS = (b"*** Begin Patch", b'"old_str', b'"oldString"', b'"oldText"')
#: One of these is said of nearly each command that failed; Codex does not say which ones did.
_FAILED = (b'"PostToolUseFailure"', b"rror", b"ailed", b"FAIL", b"atal", b"annot", b"xception", b"nvalid")
_AGENTS = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/agents"  # noqa: PTH100, PTH120 - see below


def main(agent: str) -> None:
    """Answer what a line may be said about, and hand on what can be a worker's. Does not return."""
    body = b""
    with _silence():
        body = sys.stdin.buffer.read(MAX_BYTES + 1)
        while len(body) > MAX_BYTES and sys.stdin.buffer.read(1 << 20):  # who writes it would fail if we went away
            pass
    if len(body) <= MAX_BYTES:
        with _silence():
            _tell(agent, body)
        with _silence():
            _note(agent, body)
        with _silence():
            _hear(agent, body)
    os._exit(0)


class _silence:  # noqa: N801 - as a function; `contextlib` takes longer to import than all else here
    """Suppress all errors inside the block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True


def _tell(agent: str, body: bytes) -> None:
    """Only where a person has switched it on, and only of a session that he has begun himself."""
    before_an_edit = b"PreToolUse" in body and any(map(body.__contains__, _EDITS))
    compacted = b'"SessionStart"' in body and b'"compact"' in body
    failed = b'"PostToolUse' in body and any(map(body.__contains__, _FAILED))
    if not (before_an_edit or failed or compacted or b"UserPromptSubmit" in body) or os.environ.get(
        "SMART_FORK_WORKER_ID"
    ):
        return
    state = os.path.expanduser(os.environ.get("SMART_FORK_HOME") or "~/.smart-fork")  # noqa: PTH111 - as above
    if agent and os.path.isfile(f"{state}/{RECALL}/{agent}"):  # noqa: PTH113 - as above
        from smart_fork.hooks.recall import tell

        tell(agent, body, state)


def _note(agent: str, body: bytes) -> None:
    """Only of a session that is no worker's, which has what we have given it."""
    if not os.environ.get("SMART_FORK_WORKER_ID") and b'"SessionStart"' in body:
        from smart_fork.agents.login import note_variables

        note_variables(os.environ, [agent], also=True)


def _hear(agent: str, body: bytes) -> None:
    """Without importing anything for most sessions, a person's own. An agent's daemon runs hooks without our mark."""
    daemon = f"{_AGENTS}/{agent}/daemon.py"
    if os.environ.get("SMART_FORK_WORKER_ID") or (agent and os.path.isfile(daemon)):  # noqa: PTH113 - as above
        from smart_fork.hooks.worker_events import hear

        hear(agent, body, PATIENCE_MILLISECONDS)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
