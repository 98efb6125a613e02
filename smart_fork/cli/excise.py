"""The commands of ``excise``, which cut turns out of a session's log, and the command ``forget``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from indexer import state_db
from indexer.transcripts.lines import bounded
from smart_fork.agents import AGENTS
from smart_fork.agents.excision import snapshots as kept_snapshots
from smart_fork.agents.request_fields import takes
from smart_fork.cli.command import CommandApp
from smart_fork.cli.options import YesOption, among, option
from smart_fork.cli.output import (
    NOT_ERASED,
    ProgressBar,
    err,
    out,
    printed_as_json,
    progress_bar,
    say,
    wants_json,
    working,
)
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.excise.answer import CutRequest

if TYPE_CHECKING:
    from indexer.log_changes import Progress
    from smart_fork.excise.answer import Excised, Soundness
    from smart_fork.excise.cut_plan import CutPlan


app = CommandApp(help="Cut turns out of a transcript that its agent can still resume.", no_args_is_help=True)


SessionArgument = Annotated[
    str | None,
    typer.Argument(help=f"Session id or log file. Default: {AGENTS.title_of(AGENTS.first_cut())}'s newest session."),
]


def _tools() -> tuple[str, ...]:
    return (AGENTS.AUTO, *AGENTS.cuttable())


ToolOption = Annotated[str, option("Agent", _tools, among(_tools), "--tool")]
SessionOption = Annotated[str | None, typer.Option("--session", help="The session, as an option.")]
ComposerOption = Annotated[str, typer.Option("--composer", help="Conversation, in a database of several.")]


@app.command("list")
def list_turns(  # noqa: PLR0917 - typer's way
    session: SessionArgument = None,
    reference: SessionOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Include records without a number.")] = False,
    composers: Annotated[bool, "List the conversations of a database instead."] = False,
    tool: ToolOption = AGENTS.AUTO,
    composer: ComposerOption = "",
) -> None:
    """List the turns of a session with their numbers."""
    from smart_fork.excise import lookup

    path = lookup.locate_transcript(reference or session, tool)
    if composers:
        found = AGENTS.cutter_of(lookup.auto(path) if tool == AGENTS.AUTO else tool).conversations(path)
        rows = [{"id": name, "bubbles": count} for name, count in found]
        if not printed_as_json({"path": str(path), "composers": rows}):
            for name, count in found:
                out.print(f"{name}  {count} bubbles")
        return
    with bounded():
        loaded = lookup.load_numbered(tool, path, composer)
    if printed_as_json(lookup.numbered_turns(loaded)):
        return
    say(f"{loaded.tool} {loaded.session_id} · {len(loaded.turns)} turns, about {loaded.tokens} tokens")
    pairs = list(zip(loaded.numbers, loaded.turns, strict=True))
    spoken = {number for number, turn in pairs if turn.role != "system"}
    for number, turn in pairs:
        if everything or (number is not None and (turn.role != "system" or number not in spoken)):
            mark, name = "^" if turn.inherited else " ", turn.id if number is None else str(number)
            out.print(f"{name:>5}{mark} {turn.role:<9} {turn.token_est:>7}  {turn.preview}")
    if left := lookup.left_out(loaded):
        say(left)


@app.command("cut")
@takes(order="turns session reference ids secrets force dry_run yes no_relink no_follow branch tool composer")
def cut(
    *,
    asked: CutRequest,
    session: SessionArgument = None,
    reference: SessionOption = None,
    yes: YesOption = False,
    branch: Annotated[bool, "Write a copy without these turns. Keep the original."] = False,
    tool: ToolOption = AGENTS.AUTO,
    composer: ComposerOption = "",
) -> None:
    """Cut turns or secrets. A snapshot allows a rollback."""
    from smart_fork.excise.cutting import cut as cut_out

    turns = asked.turns
    if (asked.ids or asked.secrets) and turns and session is None and reference is None and not _means_turns(turns):
        turns, session = "", turns  # with --id or --secrets the only word is the session
    if branch and not asked.dry_run:
        branch_without(reference or session, turns, asked.ids, secrets=asked.secrets, force=asked.force)
        return
    asked = replace(asked, reference=reference or session, turns=turns, tool=tool, composer=composer)
    with progress_bar() as progress:
        outcome = cut_out(asked, agree=lambda planned: yes or _confirmed(planned, progress), progress=progress)
    if not printed_as_json(outcome):
        _print_cut(outcome, summarised=not yes and not asked.dry_run)
    if asked.dry_run and outcome.warnings and not asked.force:
        say("dependency warnings (re-run with --force to override)")
        raise typer.Exit(1)
    if outcome.aborted:
        raise typer.Exit(1)


@app.command("verify")
def verify(
    session: SessionArgument = None,
    reference: SessionOption = None,
    erase: Annotated[bool, "First erase leftovers in smart-fork's files."] = False,
    tool: ToolOption = AGENTS.AUTO,
) -> None:
    """Check that nothing of a cut is left, else exit 1."""
    from smart_fork.excise import erasure, verification

    if erase:
        with working("erasing"):
            erasure.erase_again(reference or session, tool)
    with working("searching"):
        found = verification.check(reference or session, tool)
    copies = tuple(replace(one, words_found=_masked_words(one.words_found)) for one in found.copies)
    found = replace(found, words_found=_masked_words(found.words_found), copies=copies)
    if not printed_as_json(found):
        _print_found(found)
    if not found.ok:
        raise typer.Exit(1)


def _print_found(found: Soundness) -> None:
    for broken in (*found.dangling, *found.broken_links):
        out.print(f"{broken.turn_id}: {broken.reason}")
    if found.words_found:
        out.print(f"still found although cut: {', '.join(found.words_found[:20])}")
    for copy in found.copies:
        out.print(f"still in {copy.path} although cut: {', '.join(copy.words_found[:20])}".rstrip(": "))
        say(copy.reason)
    for one in found.remains:
        out.print(f"part of the cut text may be in {one.path} ({one.kind})")
    if found.remains:
        say(f"Erase it: smart-fork excise verify {found.session_id} --erase")
    for snapshot in found.snapshots:
        say(f"a snapshot contains the cut text: {snapshot}; delete it: smart-fork excise discard {snapshot}")
    if found.unknown:
        say(f"{found.unknown} cuts have no snapshot, so verify cannot search for their words")
    for path in found.unsearched:
        say(f"received a hand-over, check it by hand: {path}")
    out.print("whole" if found.ok else "not known" if _is_unverified(found) else "not whole")


def _is_unverified(found: Soundness) -> bool:
    """Return True if ``excise verify`` found nothing wrong, but could not check cuts that have no snapshot."""
    bad = found.dangling or found.broken_links or found.words_found or found.copies or found.remains
    return not bad and found.unknown > 0


@app.command("rollback")
def rollback(
    snapshot: Annotated[str | None, typer.Argument(help="Snapshot id.")] = None,
    listing: Annotated[bool, typer.Option("--list", help="List all snapshots, newest first.")] = False,
    to: Annotated[Path | None, "Write the restored session to this file instead."] = None,
    force: Annotated[bool, "Roll back even if the session has continued."] = False,
) -> None:
    """Undo a cut, byte for byte."""
    from smart_fork.excise.cutting import rollback as roll_back

    if not listing and snapshot is None:
        raise Usage("Which snapshot?", "`smart-fork excise rollback --list` lists them.")
    if listing:
        found = kept_snapshots.snapshots()
        if printed_as_json({"snapshots": [{"id": one.id, "size": one.size, "path": str(one.path)} for one in found]}):
            return
        for one in found:
            out.print(f"{one.id}  {one.size} bytes")
        if not found:
            out.print("(no snapshots)")
        return
    outcome = roll_back(str(snapshot), to=to, force=force)
    if not printed_as_json(outcome):
        for done in (outcome, *outcome.followed):
            out.print(f"Restored {done.path} from {done.restored}" if done.restored else f"Removed {done.path}")
        if outcome.snapshot:
            out.print(f"Undo: smart-fork excise rollback {outcome.snapshot}")
        for other in outcome.left:
            say(f"not restored: {other.path}: {other.reason}")
    if outcome.left:
        raise typer.Exit(1)


@app.command("discard")
def discard(
    snapshots: Annotated[list[str] | None, typer.Argument(help="Snapshot ids.")] = None,
    session: Annotated[str | None, "All snapshots of this session."] = None,
    yes: YesOption = False,
) -> None:
    """Delete snapshots for good. Their cuts become final."""
    wanted = [kept_snapshots.find(one).id for one in snapshots or ()]
    wanted += [one.id for one in kept_snapshots.of_session(session)] if session else []
    if not wanted:
        raise Usage("Which snapshots?", "`smart-fork excise rollback --list` lists them.")
    if not yes:
        if wants_json() or not sys.stdin.isatty():
            raise Usage("Deleted snapshots cannot be restored", "Add --yes to do it without a question.")
        typer.confirm(f"Delete {len(wanted)} snapshot(s) for good?", abort=True, err=True)
    gone = [one.id for one in kept_snapshots.discard(wanted)]
    if printed_as_json({"discarded": gone}):
        return
    for one in gone:
        out.print(f"deleted {one}")


@app.command("suggest")
def suggest(session: SessionArgument = None, reference: SessionOption = None, tool: ToolOption = AGENTS.AUTO) -> None:
    """Suggest what to cut, with reasons and savings."""
    from smart_fork.excise.suggestions import suggest as suggested

    with working("reading the session"):
        found = suggested(reference or session, tool)
    if printed_as_json(found):
        return
    for one in found.suggestions:
        out.print(f"{one.range:<12} {one.tokens:>7} tokens  {one.kind}: {one.reason}")
        out.print(f"             {one.command}")
    if not found.suggestions:
        out.print("nothing to suggest")


def branch_without(
    reference: str | None, turns: str, ids: Sequence[str] = (), *, secrets: bool = False, force: bool = False,
    cwd: Path | None = None,
) -> None:  # fmt: skip
    """Copy a session without some turns or secrets, and print the new session's id and path.

    `turns` are ranges such as ``5-7,9``, `ids` are turns by id.
    """
    from smart_fork.excise.cutting import branch as copy_without

    if not reference:
        raise Usage("Of which session?", "Name the session to branch.")
    target = cwd.resolve() if cwd else None
    told = copy_without(reference, turns, ids, secrets=secrets, force=force, target_cwd=target)
    if printed_as_json(told):
        return
    for warning in told.warnings:
        say(f"note: {warning.turn_id} {warning.reason}")
    out.print(f"{told.session_id} is {told.parent.session_id} without {len(told.removed)} turn(s)")
    out.print(f"  its title: {told.title}")
    out.print(f"  {told.path}")
    out.print(f"To resume the branch: {told.resume_command}")
    out.print(f"To resume the original: {told.resume_original}")


def _masked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Mask all but each word's first letter, because an answer must not repeat words that were cut."""
    return tuple(word[:1] + "*" * (len(word) - 1) for word in words)


def _means_turns(text: str) -> bool:
    """Return True if `text`, the only argument of a cut, is a range of turns, such as ``5-7``, and no session id."""
    from smart_fork.finding.session_lookup import is_session

    digits = bool(text) and all(character.isdigit() or character in "-, " for character in text)
    return digits and not is_session(text)


def _confirmed(planned: CutPlan, progress: Progress | None) -> bool:
    """Show the planned cut, and ask for confirmation. Without stdin or with ``--json``, return False unasked."""
    if wants_json() or not sys.stdin:
        say("not asked: -y commits")
        return False

    if isinstance(progress, ProgressBar):  # it would be drawn over the question
        progress.close()
    _summarise(planned.report(dry_run=False))
    sys.stderr.write("Commit? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _summarise(outcome: Excised) -> None:
    pulled = len(outcome.dependents)
    say(f"Will remove {len(outcome.removed)} turn(s) (including {pulled} pulled in by tool-call dependency):")
    dependents, repeated = set(outcome.dependents), set(outcome.repeated)
    for number, identity in zip(outcome.numbers, outcome.removed, strict=True):
        note = " (dep)" if identity in dependents else " (repeats one)" if identity in repeated else ""
        say(f"  {'-' if number is None else number} {identity}{note}")
    for warning in outcome.warnings:
        say(f"  warning: {warning.turn_id} {warning.reason}")
    if outcome.masked:
        say("Will mask: " + ", ".join(f"{count} {kind}" for kind, count in outcome.masked.items()))
    say(f"About {outcome.tokens_before} tokens become {outcome.tokens_after}.")


def _print_cut(outcome: Excised, *, summarised: bool) -> None:
    if not summarised:
        _summarise(outcome)
    if outcome.aborted:
        say("aborted")
    elif not outcome.dry_run:
        out.print(f"Removed {len(outcome.removed)} turn(s) of {outcome.session_id}")
        if outcome.relinked:
            out.print(f"relinked: {', '.join(outcome.relinked)}")
        if outcome.snapshot:
            out.print(f"Undo: smart-fork excise rollback {outcome.snapshot}")
        if outcome.snapshots:
            held = f"The cut text is still in {len(outcome.snapshots)} snapshot(s)"
            out.print(f"{held}; delete: {outcome.discard}")
        if outcome.erased is False and outcome.index and not outcome.index.updated:
            say(f"Search can still find it. {outcome.index.note}")
        elif outcome.erased is False and not outcome.left:
            say(NOT_ERASED)
        for one in outcome.followed or ():
            out.print(f"followed: {one.path}")
        for other in outcome.left or ():
            say(f"it is still in {other.path}: {other.reason}")
        for place in outcome.remains or ():
            say(f"can still be in: {place}")


def forget(
    session: Annotated[str, typer.Argument(help="Session id, 8 characters or more.")],
    undo: Annotated[bool, "Allow indexing again."] = False,
    yes: YesOption = False,
) -> None:
    """Remove everything that smart-fork keeps of a session, for good. The agent's own log stays."""
    from smart_fork.excise import erasure

    if not (undo or yes):
        _confirm_forgetting(session)
    with working("indexing it again" if undo else "erasing"):
        done = erasure.undo_forgetting(session) if undo else erasure.forget(session)
    if printed_as_json(done):
        return
    what = f"{done.agent_type} {done.session_id}"
    if undo:
        there = "it is indexed again" if done.jsonl_path else "but nothing of it is left to index"
        out.print(f"{what} is no longer forgotten; {there}.")
        return
    out.print(f"{what} is forgotten.")
    if not done.erased:
        err.print(NOT_ERASED)
    for one in done.left or ():
        err.print(f"It is still in {one.path}: {one.reason}")
    if done.jsonl_path:
        err.print(f"The agent still has its log: {done.jsonl_path}")
        if shared := _shared_id(Path(done.jsonl_path), done.agent_type):
            err.print(f"It was shared. Withdraw it: smart-fork team delete {shared} --everywhere")


@bounded()
def _confirm_forgetting(reference: str) -> None:
    """Show the session's title, and ask the person to confirm. Refuse without a terminal or with ``--json``."""
    from smart_fork.finding import session_lookup
    from smart_fork.finding.results import title

    located = session_lookup.locate(reference)
    if wants_json() or not sys.stdin.isatty():
        raise Usage("A forgotten session cannot be restored", "Add --yes to do it without a question.")
    try:
        about = f": {title(session_lookup.look_into(located).title)}"
    except NotFound:
        about = ""
    err.print(f"{located.agent} {located.session_id}{about}")
    typer.confirm("Forget it for good?", abort=True, err=True)


def _shared_id(path: Path, agent: str) -> str | None:
    """Return the id under which the session of the log at `path` is shared; `None` if it is not shared."""
    from smart_fork.agents.log_readers import READERS

    if agent in READERS.names and state_db.rows("SELECT 1 FROM pulled LIMIT 1"):
        from smart_fork.sharing.log_register import tracked_in

        with suppress(SmartForkError):
            return found[2].session_id if (found := tracked_in(path, agent)) else None
    return None
