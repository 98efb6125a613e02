"""Writes the command of ours for a fork, with all that was asked for: a dry run says it where the agent's own fails."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from indexer.transcripts.model import AgentName
from smart_fork.agents.options import Options
from smart_fork.agents.references import names_session
from smart_fork.copies.session_copy import Point

if TYPE_CHECKING:
    from smart_fork.forking.spending import Spending


def same_command(
    references: Sequence[str],
    options: Options,
    *,
    point: Point | None = None,
    budget: Spending | None = None,
    as_agent: AgentName | None = None,
    cwd: str | None = None,
) -> str:
    """Return one line that forks these sessions in the same way; several are merged."""
    given: list[tuple[str, object]] = [("--merge", len(references) > 1), ("--at", point and point.index)]
    given += _within(budget, options.prompt or "") if budget else ()
    given += [("--as", as_agent), ("--cwd", cwd), ("--in", options.place), ("--name", options.name)]
    named = isinstance(options.worktree, str)
    given += [
        ("--worktree-name" if named else "--worktree", options.worktree),
        ("--with-changes", options.with_changes),
    ]
    given.append(("--no-brief", not options.brief))
    return shlex.join(("smart-fork", "fork", *references, *_words(given), *_prompt(options.prompt)))


def _within(budget: Spending, prompt: str) -> Iterator[tuple[str, object]]:
    wanted = budget.wanted
    yield "--budget", wanted.budget
    for option, numbers in (("--keep", wanted.keep), ("--drop", wanted.drop)):
        yield option, ",".join(map(str, sorted(numbers))) or None
    yield "--intent", None if budget.intent.strip() == prompt.strip() else budget.intent
    for one in budget.also:
        yield "--also", one


def _words(given: Iterable[tuple[str, object]]) -> Iterator[str]:
    for option, value in given:
        if value is not None and value is not False:
            yield from (option,) if value is True else (option, str(value))


def _prompt(prompt: str | None) -> tuple[str, ...]:
    """The last word; behind ``--`` where it would pass for an option or a session."""
    if not prompt:
        return ()
    return ("--", prompt) if prompt.startswith("-") or names_session(prompt) else (prompt,)
