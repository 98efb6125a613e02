"""What another agent did, as a session that was handed over tells it: a line for each action, below it what came back.

It stands in the words of the agent that was told, but nobody has said it: to whoever searches it is actions and output.
"""

from __future__ import annotations

from typing import NamedTuple

#: What stands before it, on a line of its own.
DONE = "Done then, by another agent:"
_ACTION, _OUTPUT, _FAILED = "- ", "    ", " (failed)"


class Retold(NamedTuple):
    """What was said, a line for each thing that was done, and what came back of each."""

    said: str
    actions: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def retold(text: str) -> Retold:
    """A text of an agent, and what it is told at its end to have been done; of all others only what is said."""
    said, begins, block = text.rpartition(f"{DONE}\n")
    lines = block.splitlines()
    if not begins or (said and not said.endswith("\n\n")) or not all(map(_is_told, lines)):
        return Retold(text)
    done: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(_ACTION):
            done.append((line.removeprefix(_ACTION), []))
        elif done:
            done[-1][1].append(line.removeprefix(_OUTPUT))
    if not done:
        return Retold(text)
    return Retold(
        said.strip(),
        tuple(_noted(action, output) for action, output in done),
        tuple("\n".join(output) for _, output in done if output),
    )


def _is_told(line: str) -> bool:
    return line.startswith((_ACTION, _OUTPUT)) or not line.strip()


def _noted(action: str, output: list[str]) -> str:
    """One that failed with how its output begins, as an agent's own has it."""
    if not action.endswith(_FAILED):
        return action
    return " -> ".join(filter(None, (action.removesuffix(_FAILED), output[0].strip() if output else "")))
