"""The requests and answers of the ``excise`` commands, which remove turns from a transcript."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexer.json_values import Value, rare, record, value
from indexer.lazy_compilation import dataclass
from smart_fork.agents.excision.transcript import CutWarning
from smart_fork.agents.request_fields import said


@dataclass(frozen=True, slots=True)
class CutRequest:
    """A request to cut turns out of a session, or to mask its secrets. With `follow`, its copies are cut too."""

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
class CutFile(Value):
    """A copy or branch of the cut session from which the records were removed as well."""

    session_id: str
    path: str
    removed: int
    snapshot: str | None


@value
class UncutFile(Value):
    """A file that still has the cut records, and the reason."""

    path: str
    reason: str


@record
class IndexAfterCut(Value):
    """The state of the search index after a cut.

    `read` is the number of changed logs that were indexed again. `erased` is true if no index file has their old text.
    """

    updated: bool
    read: int | None = rare()
    erased: bool | None = rare()
    note: str = ""


@record
class Excised(Value):
    """The answer of a cut. `removed` has the ids of the turns that were cut, or would be in a dry run.

    `next` is the command to run next. A dry run sets no field from `followed` on. `index` and `erased` are set only if
    copies of the session were cut too.
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
    followed: tuple[CutFile, ...] | None = rare()
    left: tuple[UncutFile, ...] | None = rare()
    index: IndexAfterCut | None = rare()
    erased: bool | None = rare()
    remains: tuple[str, ...] | None = rare()
    snapshots: tuple[str, ...] | None = rare()
    discard: str | None = rare()


@value
class Parent(Value):
    """The session that was copied to make a copy without some of its turns."""

    session_id: str
    title: str


@record
class Trimmed(Excised):
    """The answer of a cut that leaves session `parent` unchanged and writes a copy of it without the cut records."""

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
    """A transcript that was restored from a snapshot (a file's content before a cut).

    `restored` is the id of that snapshot. `snapshot` has the content before the restoring, or is `None` if nothing
    changed.
    """

    session_id: str
    restored: str
    path: str
    snapshot: str | None = None


@record
class RolledBack(Restored):
    """The answer of a rollback (the undoing of a cut): the restored transcript.

    `followed` are other files that the cut had changed and that were restored too. `left` could not be restored.
    """

    followed: tuple[Restored, ...]
    left: tuple[UncutFile, ...]
    index: IndexAfterCut


@value
class FileWithCutText(Value):
    """A file, usually an agent's, that still contains words cut from a session. `reason` says what to do."""

    path: str
    words_found: tuple[str, ...]
    reason: str


@value
class Remnant(Value):
    """A file of smart-fork's own that still has words cut from a session. `kind` is, for example, "export" or "log"."""

    path: str
    kind: str


@record
class Soundness(Value):
    """The answer of ``excise verify``: defects of a transcript, and the files that still contain its cut words."""

    session_id: str
    tool: str
    path: str
    ok: bool
    dangling: tuple[CutWarning, ...]
    broken_links: tuple[CutWarning, ...]
    unanswered: tuple[str, ...]
    words_found: tuple[str, ...]
    copies: tuple[FileWithCutText, ...]
    remains: tuple[Remnant, ...]
    snapshots: tuple[str, ...]
    unknown: int
    unsearched: tuple[str, ...] = rare(())


@value
class Suggestion(Value):
    """Turns that could be cut. ``excise cut RANGE`` would save about `tokens` tokens.

    If the turns have a secret, `command` masks the secret instead.
    """

    kind: str
    range: str
    ids: tuple[str, ...]
    reason: str
    tokens: int
    command: str


@value
class Suggestions(Value):
    """The answer of ``excise suggest``: turns of one transcript that could be cut, with reasons."""

    session_id: str
    tool: str
    path: str
    tokens: int
    suggestions: tuple[Suggestion, ...]


@record
class NumberedTurn(Value):
    """A turn of a transcript in the answer of ``excise list``."""

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
    """The answer of ``excise list``: a transcript's turns in file order. Turns without a number are not messages."""

    session_id: str
    tool: str
    path: str
    tokens: int
    turns: tuple[NumberedTurn, ...]
    left_out: str = rare("")
