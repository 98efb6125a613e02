"""What is answered about cuts: values."""

from __future__ import annotations

from collections.abc import Mapping

from indexer.values import Value, rare, record, value
from smart_fork.cuts.model import CutWarning


@value
class Followed(Value):
    """A copy or branch in which the same was cut."""

    session_id: str
    path: str
    removed: int
    snapshot: str | None


@value
class NotFollowed(Value):
    """A file in which the same was not done, and why."""

    path: str
    reason: str


@record
class Refreshed(Value):
    """Whether the index has read the logs again, how many, and whether what was in it before is erased."""

    updated: bool
    read: int | None = rare()
    erased: bool | None = rare()
    note: str = ""


@record
class Excised(Value):
    """What was cut, or would be; `next` says how to go on.

    From `followed` on there is nothing where nothing was written, `index` and `erased` only where copies follow.
    """

    session_id: str
    next: str = rare("")
    tool: str
    path: str
    dry_run: bool
    removed: tuple[str, ...]
    seeds: tuple[str, ...]
    dependents: tuple[str, ...]
    repeated: tuple[str, ...]
    numbers: tuple[int | None, ...]
    warnings: tuple[CutWarning, ...]
    relinked: tuple[str, ...]
    masked: Mapping[str, int]
    snapshot: str | None = None
    tokens_before: int
    tokens_after: int
    aborted: bool = rare(default=False)
    followed: tuple[Followed, ...] | None = rare()
    left: tuple[NotFollowed, ...] | None = rare()
    index: Refreshed | None = rare()
    erased: bool | None = rare()
    remains: tuple[str, ...] | None = rare()
    snapshots: tuple[str, ...] | None = rare()
    discard: str | None = rare()


@value
class Parent(Value):
    """The session that a copy was made of."""

    session_id: str
    title: str


@record
class Trimmed(Excised):
    """What was left out of a copy, and the new session: its id and path, not its parent's."""

    agent_type: str
    title: str
    parent: Parent
    working_directory: str
    resume_command: str
    resume_original: str
    new_session_id: str
    new_path: str


@record
class Restored(Value):
    """A transcript that is as a snapshot has it. `snapshot` has what was there before; null where that was the same."""

    session_id: str
    restored: str
    path: str
    snapshot: str | None = None


@record
class RolledBack(Restored):
    """The transcript that was named, and all others that were changed by the same cut or rollback."""

    followed: tuple[Restored, ...]
    left: tuple[NotFollowed, ...]
    index: Refreshed


@value
class CopyBehind(Value):
    """Another file that still has something of what was cut, and what to do about it."""

    path: str
    words_found: tuple[str, ...]
    reason: str


@value
class Remnant(Value):
    """A file of ours that has something of what was cut, and what kind of file it is."""

    path: str
    kind: str


@record
class Soundness(Value):
    """What is broken in a transcript, and where anything of its cuts is still found."""

    session_id: str
    tool: str
    path: str
    ok: bool
    dangling: tuple[CutWarning, ...]
    broken_links: tuple[CutWarning, ...]
    unanswered: tuple[str, ...]
    words_found: tuple[str, ...]
    copies: tuple[CopyBehind, ...]
    remains: tuple[Remnant, ...]
    snapshots: tuple[str, ...]
    unknown: int
    unsearched: tuple[str, ...] = rare(())


@value
class Suggestion(Value):
    """Turns that could go. `range` is what ``cut`` takes; `tokens` what it saves; for secrets the cure is masking."""

    kind: str
    range: str
    ids: tuple[str, ...]
    reason: str
    tokens: int
    command: str


@value
class Suggestions(Value):
    """What could be cut from a transcript."""

    session_id: str
    tool: str
    path: str
    tokens: int
    suggestions: tuple[Suggestion, ...]


@record
class NumberedTurn(Value):
    """A turn as lists show it."""

    number: int | None
    id: str
    role: str
    timestamp: str
    tokens: int
    inherited: bool
    calls: tuple[str, ...]
    results: tuple[str, ...]
    preview: str


@value
class NumberedTurns(Value):
    """A transcript's turns in the order of the file, with the numbers that they have everywhere."""

    session_id: str
    tool: str
    path: str
    tokens: int
    turns: tuple[NumberedTurn, ...]
