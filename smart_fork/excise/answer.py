"""Requests and answers of the commands that cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexer.lazy import dataclass
from indexer.values import Value, rare, record, value
from smart_fork.agents.cuts.model import CutWarning
from smart_fork.agents.options import said


@dataclass(frozen=True, slots=True)
class CutRequest:
    """A cut to make. `follow` says whether copies, branches and the index are cut as well."""

    reference: str | None = None
    turns: str = said(
        default="",
        help="Turns, numbered as in `excise list`: 5-7,9.",
        described="Which turns, as read_session numbers them: 5-7,9.",
        argument=True,
    )
    ids: Sequence[str] = said(
        list[str],
        default=(),
        help="Id of a turn. Repeatable.",
        described="Which turns, by their ids (message_id).",
        flags=("--id",),
    )
    secrets: bool = said(
        bool,
        default=False,
        help="Mask secrets instead, in all turns or in the given ones.",
        described="Mask secrets instead, in all turns or in the given ones.",
    )
    force: bool = said(bool, default=False, help="Cut despite warnings.", described="Cut against warnings.")
    dry_run: bool = said(bool, default=False, help="Print what would be cut. Change nothing.")
    relink: bool = said(
        bool, default=True, help="Do not reconnect the parents of later records.", flags=("--no-relink",)
    )
    follow: bool = said(bool, default=True, help="Do not cut copies, branches and the index.", flags=("--no-follow",))
    tool: str = "auto"
    composer: str = ""
    command: str = "cut"


@value
class Followed(Value):
    """A copy or branch from which the same records were cut."""

    session_id: str
    path: str
    removed: int
    snapshot: str | None


@value
class NotFollowed(Value):
    """A file that still has the cut records, and the reason."""

    path: str
    reason: str


@record
class Refreshed(Value):
    """The index after a cut: `updated` if the logs were read again, and `erased` if the old passages are erased."""

    updated: bool
    read: int | None = rare()
    erased: bool | None = rare()
    note: str = ""


@record
class Excised(Value):
    """The records that were cut, or would be in a dry run; `next` names the next step.

    Fields from `followed` on are absent in a dry run. `index` and `erased` are set only if copies were searched.
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
    """The session from which a copy was made."""

    session_id: str
    title: str


@record
class Trimmed(Excised):
    """A copy without the cut records. `new_session_id` and `new_path` are the copy's, `session_id` is the parent's."""

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
    """A transcript that a snapshot restored. `snapshot` has the state before; `None` if nothing changed."""

    session_id: str
    restored: str
    path: str
    snapshot: str | None = None


@record
class RolledBack(Restored):
    """The named transcript, and all others that the same cut or rollback changed."""

    followed: tuple[Restored, ...]
    left: tuple[NotFollowed, ...]
    index: Refreshed


@value
class CopyBehind(Value):
    """Another file that still contains cut words, with the next step."""

    path: str
    words_found: tuple[str, ...]
    reason: str


@value
class Remnant(Value):
    """One of smart-fork's own files that contains cut words, and its kind."""

    path: str
    kind: str


@record
class Soundness(Value):
    """Defects of a transcript, and the places where its cut words were still found."""

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
    """Turns that could be cut. ``cut`` takes `range`; `tokens` would be saved. Secrets are masked, not cut."""

    kind: str
    range: str
    ids: tuple[str, ...]
    reason: str
    tokens: int
    command: str


@value
class Suggestions(Value):
    """The suggestions for one transcript."""

    session_id: str
    tool: str
    path: str
    tokens: int
    suggestions: tuple[Suggestion, ...]


@record
class NumberedTurn(Value):
    """A turn in a list."""

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
    """A transcript's turns in file order, with their usual numbers."""

    session_id: str
    tool: str
    path: str
    tokens: int
    turns: tuple[NumberedTurn, ...]
    left_out: str = rare("")
