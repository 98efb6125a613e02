"""Prepares a session for sharing. Each step can only remove content.

1. Refused altogether is what nobody may share; it goes up to its last complete pair: what the agent does now stays.
2. Of each record what is on the list of its agent. 3. Nothing of the files that ``.smartforkignore`` names.
4. No images, unless they are asked for. 5. Paths of this machine become marks. 6. Secrets are masked.

Marks are put in first, since a log is compared by them with what went out before; nothing depends on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from indexer import changes
from indexer.repositories import recorded
from indexer.transcripts.lines import decode_line
from indexer.transcripts.long_lines import INSTEAD
from indexer.transcripts.model import AgentName, Session
from smart_fork import config
from smart_fork.agents import AGENTS, checkpoints
from smart_fork.agents.codec import Record
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.record_conversion import HOME, LITERAL, ROOT, Forms, HomePlace
from smart_fork.errors import Conflict, ForkRefused, NotFound, SmartForkError, Unshareable, Usage
from smart_fork.forking.secrets import MaskedSecrets, Secrets
from smart_fork.sharing.canonical import NOTHING, START, encode, state_after, written
from smart_fork.sharing.ignore_file import WITHHELD, Ignored, ignored
from smart_fork.snippets import printable, quoted

#: What is left out, as a person is told of it.
OTHER, FILES, IMAGES, THOUGHTS, OPEN, LONG = (
    "records outside the conversation", "calls of withheld files", "images", "thoughts with a secret",
    "unfinished exchanges", "texts that are too long",
)  # fmt: skip
#: The same of one.
ONE = {
    OTHER: "record outside the conversation", FILES: "call of a withheld file", IMAGES: "image",
    THOUGHTS: "thought with a secret", LONG: "text that is too long",
}  # fmt: skip
#: Deeper than any record is; and of a tool's name, how much is repeated.
_DEPTH, _NAME = 64, 40
#: Of these a record has one if there is an image in it, in whatever agent's words.
_PICTURED = (b"image", b"base64", b"inlineData", b"document", b'"pdf"')
_DATA_URL = re.compile(r"data:([\w.+-]{1,40}/[\w.+-]{1,40});base64,([A-Za-z0-9+/=_-]{64,})")


class NotSent(SmartForkError):
    """It could be sent and must not be."""

    code = "not_sent"


class NothingToPush(ForkRefused):
    """It has nothing complete yet."""

    code = "nothing_to_push"


@dataclass(frozen=True, slots=True)
class SentBefore:
    """The records of the log that were sent before: their number, and their digest as they are in the log."""

    count: int = 0
    digest: str = NOTHING


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The part of a session that is sent.

    `records` are canonical, and those alone that come after what went out before. `numbers` says of each which of the
    log's it is, and `here` has what is shared of that one as the log says it. `local` is the log as it is then, for the
    next time. `masked` counts secrets by kind, `samples` shows a few of each with what stands around, masked;
    `left_out` counts what is not sent; `withheld` names the files of which nothing is, `files` those that the session
    set out to edit. `end` is its last turn of which something is sent, and `secrets` knows what was masked. `whole`
    makes the same from the first record on, where these do not begin there.
    """

    session: Session
    place: HomePlace
    records: tuple[bytes, ...]
    numbers: tuple[int, ...]
    here: tuple[Record, ...]
    local: SentBefore
    masked: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    samples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    title: str = ""
    end: int = 0
    secrets: Secrets = field(default_factory=Secrets)
    whole: Callable[[], Outgoing] | None = None

    @property
    def size(self) -> int:
        """The number of bytes to send."""
        return sum(map(len, self.records))

    @property
    def left_off(self) -> str:
        """The unfinished end of the session, which stays here; empty where nobody misses it."""
        rest = self.session.turns[self.end + 1 :]
        prompts = sum(turn.prompt for turn in rest)
        calls = [printable(call.name)[:_NAME] for turn in rest for call in turn.tool_calls]
        named = ", ".join(dict.fromkeys(calls))
        said = (
            f"{prompts} unanswered prompt{'s' * (prompts > 1)}" if prompts else "",
            f"{len(calls)} unfinished call{'s' * (len(calls) > 1)} ({named})" if calls else "",
            "the interruption" if self.session.interrupted else "",
        )
        return ", ".join(filter(None, said))

    def plain(self, text: str) -> str:
        """A text about the session, as people read it: without paths of this machine and secrets."""
        return plain(text, self.place, self.secrets, AGENTS.forms_of(self.session.agent))


def prepare(
    log: Path,
    agent: str,
    root: str | Path,
    *,
    since: SentBefore | None = None,
    images: bool = False,
    read: Session | None = None,
) -> Outgoing:
    """Prepare the session in `log` for sending. `root` is its project's root; `read` is the session if it was already
    read.

    Raises:
        NotFound: There is no conversation in it, or one that it was forked from is gone.
        NotSent: A person has forgotten it, it is a sub-agent's, or in a directory of which nothing is shared.
        ForkRefused: Nothing in it is finished.
        Conflict: What went out before is not in it any more.
        Unshareable: An id in it looks like a secret, or a record cannot be written.
        Usage: Sessions of that agent are not shared, or a setting is wrong.
    """
    forms, known = AGENTS.forms_of(agent), settings()
    place = HomePlace(str(root).rstrip("/"), str(Path.home()).rstrip("/"))
    session = read or _read(log, agent)
    _may_leave(session, place, known)
    end = last_pair(session)
    secrets = Secrets(known.redact, known.allow)
    secrets.learn(forms.records_of(session, end))
    steps = _Steps(forms, place, session.cwd, ignored(place), secrets, images=images)
    if open_turns := sum(turn.speaks for turn in session.turns[end + 1 :]):
        steps.left_out[OPEN] = open_turns
    records = tuple(steps.records(session, end, since or SentBefore()))
    for turn in session.turns if since else ():  # a name repeats what was said, which may be out already
        secrets.text(str(turn.text))
    return Outgoing(
        session,
        place,
        tuple(data for _, data, _ in records),
        tuple(number for number, _, _ in records),
        tuple(here for _, _, here in records),
        steps.local,
        +steps.found.kinds,
        steps.left_out,
        {kind: tuple(shown) for kind, shown in steps.found.samples.items()},
        tuple(steps.withheld),
        tuple(dict.fromkeys(path for turn in session.turns for call in turn.tool_calls for path in call.edits)),
        plain(session.title, place, secrets, forms),
        end,
        secrets,
        partial(prepare, log, agent, root, images=images) if since and since.count else None,
    )


def last_pair(session: Session) -> int:
    """The turn that a shared session ends with: its last answer, or the last result of a call.

    Raises:
        NothingToPush: there is none.
    """
    if points := session.pairs():
        return points[-1]
    raise NothingToPush(
        f"Nothing to push: {session.session_id} has no answer and no tool result yet.",
        "Push it after the first one.",
    )


def digests_of(lines: Iterable[bytes], agent: AgentName, root: Path) -> frozenset[str]:
    """Digests that lines of a log have as shared records, sent with their images or without."""
    forms, known = AGENTS.forms_of(agent), settings()
    place = HomePlace(str(root).rstrip("/"), str(Path.home()).rstrip("/"))
    records = [record for line in lines for _, record in decode_line(line)[0]]
    secrets = Secrets(known.redact, known.allow)
    secrets.learn(records)
    found = set()
    for images in (False, True):
        steps = _Steps(forms, place, str(root), ignored(place), secrets, images=images)
        for record in records:
            with suppress(Unshareable):
                found.add(steps.sent(forms.outgoing(record, place)))
    return frozenset(sha256(one).hexdigest() for one in found if one)


def plain(text: str, place: HomePlace, secrets: Secrets, forms: Forms) -> str:
    """A text about a session, as people read it: without paths of this machine and secrets."""
    shared = str(forms.outgoing({"text": text}, place)["text"])
    return secrets.name(shared.replace(ROOT, ".").replace(HOME, "~").replace(LITERAL, ""))


def _read(log: Path, agent: str) -> Session:
    try:
        result = READERS[agent].read(log)
    except FileNotFoundError as error:
        raise NotFound(f"The session's log is gone: {log}") from error
    if result.session is None:
        if "sub-agent" in result.skipped:
            raise NotSent("Sub-agents cannot be pushed.", "Push the session that started it.")
        raise NotFound(f"No conversation in {log}: {result.skipped}")
    return result.session


def _may_leave(session: Session, place: HomePlace, known: config.TeamSection) -> None:
    if checkpoints.is_within(str(session.source_path)):
        raise NotSent("The repository keeps this session.", "Its author can push it.")
    if session.origin == "subagent":
        raise NotSent("Sub-agents cannot be pushed.", "Push the session that started it.")
    if (session.agent, session.session_id) in changes.forgotten():
        raise NotSent("This session was forgotten.", "Forgotten sessions are not pushed.")
    for where in filter(None, (recorded(session.cwd), recorded(place.root))):
        for never in known.never:
            if where.is_relative_to(never):
                raise NotSent(
                    f"Nothing is pushed from {never}.", "`never` of [team] in config.toml names that directory."
                )


class _Steps:
    """The steps in their order, and what they took away."""

    def __init__(
        self, forms: Forms, place: HomePlace, cwd: str, hidden: Ignored | None, secrets: Secrets, *, images: bool
    ) -> None:
        self._forms, self._place, self._cwd = forms, place, cwd
        self._hidden, self._secrets, self._images = hidden, secrets, images
        self._ids: set[str] = set()
        self.found = MaskedSecrets()
        self.left_out: Counter[str] = Counter()
        self.withheld: dict[str, None] = {}
        self.local = SentBefore()

    def records(self, session: Session, end: int, since: SentBefore) -> Iterator[tuple[int, bytes, Record]]:
        """Each record that is sent, with its number in the log and what is shared of it there."""
        state, number = START, 0
        for record in self._forms.records_of(session, end):
            if number == since.count:
                _same(written(state), since, session.session_id)
            number += 1
            shared = self._forms.outgoing(record, self._place)
            whole = orjson.dumps(shared, option=orjson.OPT_SORT_KEYS)
            state = state_after([whole], state)
            self._note_files(record)
            if number > since.count and (data := self._sent(shared, whole, number)):
                yield number, data, self._forms.sent(record) or {}
        if number < since.count or (number == since.count and written(state) != since.digest):
            _same("", since, session.session_id)
        self.local = SentBefore(number, written(state))

    def sent(self, shared: Record) -> bytes | None:
        """A record as it is sent; nothing where it is not."""
        return self._sent(shared, orjson.dumps(shared, option=orjson.OPT_SORT_KEYS), 0)

    def _sent(self, shared: Record, whole: bytes, number: int) -> bytes | None:
        kept = self._forms.sent(shared)
        if kept is None:
            self.left_out[OTHER] += 1
            return None
        if abridged := len(INSTEAD.findall(whole)):
            self.left_out[LONG] += abridged
        kept = self._without_files(kept)
        if not self._images and any(sign in whole for sign in _PICTURED):  # of the few records that could have one
            kept = self._without_images(kept, 0)
        try:
            masked = self._secrets.record(kept, self._forms, self.found)
            if masked is None:
                self.left_out[THOUGHTS] += 1
            return encode(masked) if masked else None
        except Unshareable as error:
            raise type(error)(f"Record {number}: {error.message}", error.hint) from error

    def _note_files(self, record: Record) -> None:
        """The calls of which nothing is sent; also those that went out before: what they give back may come now."""
        if self._hidden is None:
            return
        cwd = record.get("cwd")
        for call in self._forms.calls(record):
            if path := self._hidden.named_by(call, cwd if isinstance(cwd, str) else self._cwd):
                self._ids.add(call.id)
                self.withheld[path] = None
        for identity, output, *_ in self._forms.decode(record).results:
            if identity not in self._ids and (path := self._hidden.shown_in(output, self._cwd)):
                self._ids.add(identity)
                self.withheld[path] = None

    def _without_files(self, record: Record) -> Record:
        # Compared, not hashed: what stands in the place of an id may be anything.
        new = self._forms.withheld(record, tuple(self._ids), WITHHELD) if self._ids else record
        if new is not record and new != record:
            self.left_out[FILES] += 1
        return new

    def _without_images(self, value: Any, depth: int) -> Any:
        if isinstance(value, str):
            return _DATA_URL.sub(self._left_out, value) if "data:" in value else value
        if depth >= _DEPTH:
            return value
        if isinstance(value, list):
            return [self._without_images(part, depth + 1) for part in value]
        if isinstance(value, dict):
            if image := self._forms.image(value):
                self.left_out[IMAGES] += 1
                return image.instead(_note(image.kind, image.size))
            return {name: self._without_images(part, depth + 1) for name, part in value.items()}
        return value

    def _left_out(self, found: re.Match[str]) -> str:
        self.left_out[IMAGES] += 1
        return _note(found[1], len(found[2]) * 3 // 4)


def _note(kind: str, size: int) -> str:
    """``[image dropped: png, 120 kB]``."""
    what, _, which = kind.rpartition("/")
    return f"[{what if what == 'image' else 'document' if what else 'image'} dropped: {which}, {_size(size)}]"


def _size(size: int) -> str:
    return f"{size} bytes" if size < 1_000 else f"{size // 1_000} kB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"


def _same(digest: str, since: SentBefore, session_id: str) -> None:
    if digest != since.digest:
        raise Conflict(
            f"Pushed records have changed here (in its first {since.count} records).",
            f"smart-fork team push {session_id} --force shares the local session without a parent. "
            f"Or smart-fork team branch {session_id} --local copies the pushed records.",
        )


_EXAMPLE = 'Such as: [team] never = ["~/private"], redact = ["ACME-[0-9]{6}"], allow = ["test-token-1"].'


def settings() -> config.TeamSection:
    """Return the team section of the configuration.

    Raises:
        Usage: The file is no TOML, has a name that is not known, or a value that is none.
    """
    found = config.team()
    for pattern in found.redact:
        _check(pattern)
    return replace(found, never=tuple(str(Path(one).expanduser().resolve()) for one in found.never))


def _check(pattern: str) -> None:
    try:
        empty = re.compile(pattern).fullmatch("")
    except re.error as error:
        raise Usage(f"[team] redact: {quoted(pattern)} is not a pattern: {error}", _EXAMPLE) from error
    if empty:
        raise Usage(f"[team] redact: {quoted(pattern)} matches the empty text", _EXAMPLE)
