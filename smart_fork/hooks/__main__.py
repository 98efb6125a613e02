"""The command that agents run as a hook: ``python -P -m smart_fork.hooks AGENT``, with the event as JSON on stdin.

It always exits with 0 and does not keep the agent waiting, because an agent stops or complains if a hook fails. Events
are written directly to the registry of workers, so no service needs to run. It prints nothing but hints (lines about
fitting past sessions), if these are on: at first prompts, edits, failures and compactions.
"""

from __future__ import annotations

import os
import sys

from smart_fork.hooks import RECALL

#: A prompt may be long, but a longer input is not an event of an agent.
MAX_BYTES = 16 << 20
#: How long to wait for another process that writes to the registry of workers.
PATIENCE_MILLISECONDS = 1_000
#: Each call that replaces text contains one of these; a shell command contains none.
_EDITS = (b"*** Begin Patch", b'"old_str', b'"oldString"', b'"oldText"')
#: Nearly each event of a failed command contains one of these. Codex does not say which commands failed.
_FAILED = (b'"PostToolUseFailure"', b"rror", b"ailed", b"FAIL", b"atal", b"annot", b"xception", b"nvalid")
_AGENTS = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}/agents"  # noqa: PTH100, PTH120 - see below


def main(agent: str) -> None:
    """Read a hook's event from stdin, print a hint (a line about a past session) or store a worker's state, and end."""
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
    """A context manager that suppresses all errors inside the block."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> bool:
        return True


def _tell(agent: str, body: bytes) -> None:
    """Print a hint (one line about a past session) for an event of a person's session, if hints are on."""
    before_an_edit = b"PreToolUse" in body and any(map(body.__contains__, _EDITS))
    compacted = b'"SessionStart"' in body and b'"compact"' in body
    failed = b'"PostToolUse' in body and any(map(body.__contains__, _FAILED))
    if not (before_an_edit or failed or compacted or b"UserPromptSubmit" in body) or os.environ.get(
        "SMART_FORK_WORKER_ID"
    ):
        return
    state = os.path.expanduser(os.environ.get("SMART_FORK_HOME") or "~/.smart-fork")  # noqa: PTH111 - as above
    if agent and os.path.isfile(f"{state}/{RECALL}/{agent}"):  # noqa: PTH113 - as above
        from smart_fork.hooks.hints import tell

        tell(agent, body, state)


def _note(agent: str, body: bytes) -> None:
    """Store the agent's environment variables when a person's session begins. A worker's are known already."""
    if not os.environ.get("SMART_FORK_WORKER_ID") and b'"SessionStart"' in body:
        from smart_fork.agents import AGENTS

        AGENTS.note_login_variables(os.environ, [agent], also=True)


def _hear(agent: str, body: bytes) -> None:
    """Store the event in the registry of workers, if its session can be a worker's.

    That is so if the environment names a worker, or if the agent runs its hooks in a daemon, which lacks that variable.
    """
    daemon = f"{_AGENTS}/{agent}/daemon.py"
    if os.environ.get("SMART_FORK_WORKER_ID") or (agent and os.path.isfile(daemon)):  # noqa: PTH113 - as above
        from smart_fork.workers.hook_events import hear

        hear(agent, body, PATIENCE_MILLISECONDS)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
