"""The command that the agents run: ``python -P -m smart_fork.hooks claude|codex``, with the event as JSON on stdin.

Whatever happens it says nothing, ends with 0, and does not keep the agent waiting: an agent that a hook fails for stops
or complains. Nobody has to be up to hear it, for it is written straight into the registry.
"""

from __future__ import annotations

import os
import sys

#: A prompt may be long; what is longer than this is not an event of an agent.
MAX_BYTES = 16 << 20
#: How long another process that writes is waited for.
PATIENCE_MILLISECONDS = 1_000


def main(agent: str) -> None:
    """Hand the event on, if it can be one of a worker's. Does not return."""
    try:
        body = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(body) > MAX_BYTES:
            while sys.stdin.buffer.read(1 << 20):  # who writes it would fail if we went away
                pass
        else:
            if _is_a_persons_start(body):
                from smart_fork.agents.known_variables import note

                note(os.environ, [agent], also=True)
            if _may_be_a_worker(agent):
                from smart_fork.hooks.command import hear

                hear(agent, body, PATIENCE_MILLISECONDS)
    except BaseException:  # noqa: BLE001, S110 - see above
        pass
    os._exit(0)


def _may_be_a_worker(agent: str) -> bool:
    """Without importing anything: most sessions are a person's own. Codex may run its hooks without our mark."""
    return agent == "codex" or bool(os.environ.get("SMART_FORK_WORKER_ID"))


def _is_a_persons_start(body: bytes) -> bool:
    """Whether a session begins that is no worker's, which has what we have given it."""
    return not os.environ.get("SMART_FORK_WORKER_ID") and b'"SessionStart"' in body


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
