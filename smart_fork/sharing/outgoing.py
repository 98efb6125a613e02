"""Prepares a session for sharing: which records are sent, and in which form. Each step can only remove content.

1. Sessions that must not be shared are refused. A session ends with its last complete pair (a call with its result,
   or a prompt with its answer).
2. Only the fields on the agent's list stay.
3. Content of files in ``.smartforkignore`` is removed. The file has the syntax of ``.gitignore``, and a cloned
   repository cannot use it to upload anything.
4. Images are removed, unless they are asked for.
5. Paths of this machine become marks (placeholders), such as a mark for the project's root.
6. Secrets are masked. Comparisons with earlier pushes use the records before this step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from indexer import log_changes
from indexer.repositories import recorded
from indexer.transcripts.lines import decode_line
from indexer.transcripts.long_lines import INSTEAD
from indexer.transcripts.model import AgentName, Session
from smart_fork import config
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.decoders import Record
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import Converter, HomePlace
from smart_fork.display_text import printable
from smart_fork.errors import Conflict, ForkRefused, NotFound, SmartForkError, Unshareable
from smart_fork.forking.record_masking import MaskedSecrets, RecordMasker
from smart_fork.sharing.canonical import NOTHING, START, digest_of_state, encode, state_after
from smart_fork.sharing.ignore_file import IgnoreRules, ignore_rules

#: The kinds of removed content, as people read them.
OTHER, FILES, IMAGES, THOUGHTS, OPEN, LONG = (
    "records outside the conversation", "calls of withheld files", "images", "thoughts with a secret",
    "unfinished exchanges", "texts that are too long",
)  # fmt: skip
#: The singular of each kind.
ONE = {
    OTHER: "record outside the conversation", FILES: "call of a withheld file", IMAGES: "image",
    THOUGHTS: "thought with a secret", LONG: "text that is too long",
}  # fmt: skip
#: The deepest nesting that is searched, beyond any record's, and the characters shown of a tool's name.
_DEPTH, _NAME = 64, 40
#: Every record with an image contains one of these words.
_PICTURED = (b"image", b"base64", b"inlineData", b"document", b'"pdf"')
_DATA_URL = re.compile(r"data:([\w.+-]{1,40}/[\w.+-]{1,40});base64,([A-Za-z0-9+/=_-]{64,})")
WITHHELD = "[WITHHELD]"


class NotSent(SmartForkError):
    """A session that could be sent, but must not be, such as a forgotten one."""

    code = "not_sent"


class NothingToPush(ForkRefused):
    """A session that has no complete pair yet: neither a prompt with its answer, nor a call with its result."""

    code = "nothing_to_push"


@dataclass(frozen=True, slots=True)
class SentBefore:
    """The records of a log that earlier pushes sent: their number, and a digest of them as they are in the log."""

    count: int = 0
    digest: str = NOTHING


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A session prepared for sending: the `records` that were not sent before, and the kinds of removed content.

    For each record, `numbers` has its number in the log, and `here` its shared fields as they are in the log. `local`
    describes all records of the log, for the next push. `masked` counts secrets by kind, and `samples` shows some with
    their surroundings. `left_out` counts removed content by kind. `withheld` are ignored files, `files` edited ones.
    `end` is the last sent turn. `whole`, if some records were sent before, is a function that prepares all of them.
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
    secrets: RecordMasker = field(default_factory=RecordMasker)
    whole: Callable[[], Outgoing] | None = None

    @property
    def size(self) -> int:
        """The size of the records to send, in bytes."""
        return sum(map(len, self.records))

    @property
    def left_off(self) -> str:
        """The unfinished end of the session, which is not sent, such as "1 unanswered prompt"; "" without one."""
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
        """Remove secrets and paths of this machine from a text about the session."""
        return plain(text, self.place, self.secrets)


def prepare(
    log: Path,
    agent: str,
    root: str | Path,
    *,
    since: SentBefore | None = None,
    images: bool = False,
    read: Session | None = None,
) -> Outgoing:
    """Prepare the session in `log`, of the project at `root`, for sending. `read` is the session if already read.

    `since` are the records that were sent before: only later ones are prepared. With `images`, images are sent, too.

    Raises:
        NotFound: the log has no conversation, or the session that it was forked from is gone.
        NotSent: the session was forgotten, is a sub-agent's, or is in a directory that is never shared.
        ForkRefused: no pair is complete.
        Conflict: records that were sent before have changed.
        Unshareable: an id in the session looks like a secret, or a record cannot be written.
        Usage: sessions of this agent are not shared, or a setting is wrong.
    """
    converter, known = AGENTS.converter_of(agent), config.sharing_rules()
    place = HomePlace.of(Path(root))
    session = read or _read(log, agent)
    _may_leave(session, place, known)
    end = last_pair(session)
    secrets = RecordMasker(known.redact, known.allow)
    secrets.learn(converter.records_of(session, end))
    steps = _Steps(converter, place, session.cwd, ignore_rules(place), secrets, images=images)
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
        plain(session.title, place, secrets),
        end,
        secrets,
        partial(prepare, log, agent, root, images=images) if since and since.count else None,
    )


def dropped_in_words(left_out: Mapping[str, int]) -> str:
    """Return the counts of removed content (see `Outgoing`) as a text, without the unfinished end of the session."""
    shown = sorted((what, number) for what, number in left_out.items() if what != OPEN)
    return ", ".join(f"{number} {ONE.get(what, what) if number == 1 else what}" for what, number in shown)


def last_pair(session: Session) -> int:
    """Return the index of a session's last answer or tool result to share. Raise `NothingToPush` without one."""
    if points := session.pairs():
        return points[-1]
    raise NothingToPush(
        f"Nothing to push: {session.session_id} has no answer and no tool result yet.", "Push it after the first one."
    )


def digests_of(lines: Iterable[bytes], agent: AgentName, root: Path) -> frozenset[str]:
    """Return the digests that a log's lines have as shared records, with and without images, which a push may drop."""
    converter, known = AGENTS.converter_of(agent), config.sharing_rules()
    place = HomePlace.of(root)
    records = [record for line in lines for _, record in decode_line(line)[0]]
    secrets = RecordMasker(known.redact, known.allow)
    secrets.learn(records)
    found = set()
    for images in (False, True):
        steps = _Steps(converter, place, str(root), ignore_rules(place), secrets, images=images)
        for record in records:
            with suppress(Unshareable):
                found.add(steps.sent(converter.outgoing(record, place)))
    return frozenset(sha256(one).hexdigest() for one in found if one)


def plain(text: str, place: HomePlace, secrets: RecordMasker) -> str:
    """Remove secrets and paths of this machine from a text about a session."""
    return secrets.name(place.shortened(text))


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
    if repository_sessions.is_within(str(session.source_path)):
        raise NotSent("The repository keeps this session.", "Its author can push it.")
    if session.origin == "subagent":
        raise NotSent("Sub-agents cannot be pushed.", "Push the session that started it.")
    if (session.agent, session.session_id) in log_changes.forgotten():
        raise NotSent("This session was forgotten.", "Forgotten sessions are not pushed.")
    for where in filter(None, (recorded(session.cwd), recorded(place.root))):
        for never in known.never:
            if where.is_relative_to(never):
                raise NotSent(
                    f"Nothing is pushed from {never}.", "`never` of [team] in config.toml names that directory."
                )


class _Steps:
    """The steps that turn a log's records into records to send, with counts of the content that they remove."""

    def __init__(
        self,
        converter: Converter,
        place: HomePlace,
        cwd: str,
        hidden: IgnoreRules | None,
        secrets: RecordMasker,
        *,
        images: bool,
    ) -> None:
        self._converter, self._place, self._cwd = converter, place, cwd
        self._hidden, self._secrets, self._images = hidden, secrets, images
        self._ids: set[str] = set()
        self.found = MaskedSecrets()
        self.left_out: Counter[str] = Counter()
        self.withheld: dict[str, None] = {}
        self.local = SentBefore()

    def records(self, session: Session, end: int, since: SentBefore) -> Iterator[tuple[int, bytes, Record]]:
        """Yield the records to send, up to turn `end`, without the first ones, which were sent before (see `since`).

        A record is yielded as (number in the log, bytes to send, its shared fields as they are in the log).
        """
        state, number = START, 0
        for record in self._converter.records_of(session, end):
            if number == since.count:
                _same(digest_of_state(state), since, session.session_id)
            number += 1
            shared = self._converter.outgoing(record, self._place)
            whole = orjson.dumps(shared, option=orjson.OPT_SORT_KEYS)
            state = state_after([whole], state)
            self._note_files(record)
            if number > since.count and (data := self._sent(shared, whole, number)):
                yield number, data, self._converter.sent(record) or {}
        if number < since.count or (number == since.count and digest_of_state(state) != since.digest):
            _same("", since, session.session_id)
        self.local = SentBefore(number, digest_of_state(state))

    def sent(self, shared: Record) -> bytes | None:
        """Return the bytes to send for a record, without withheld content and secrets; `None` if it is not sent."""
        return self._sent(shared, orjson.dumps(shared, option=orjson.OPT_SORT_KEYS), 0)

    def _sent(self, shared: Record, whole: bytes, number: int) -> bytes | None:
        kept = self._converter.sent(shared)
        if kept is None:
            self.left_out[OTHER] += 1
            return None
        if abridged := len(INSTEAD.findall(whole)):
            self.left_out[LONG] += abridged
        kept = self._without_files(kept)
        if not self._images and any(sign in whole for sign in _PICTURED):  # of the few records that could have one
            kept = self._without_images(kept, 0)
        try:
            masked = self._secrets.record(kept, self._converter, self.found)
            if masked is None:
                self.left_out[THOUGHTS] += 1
            return encode(masked) if masked else None
        except Unshareable as error:
            raise type(error)(f"Record {number}: {error.message}", error.hint) from error

    def _note_files(self, record: Record) -> None:
        """Note the tool calls and results of a record that name or show ignored files, to withhold their content.

        Records of earlier pushes are noted, too, because the output of their calls may be sent now.
        """
        if self._hidden is None:
            return
        cwd = record.get("cwd")
        for call in self._converter.calls(record):
            if path := self._hidden.named_by(call, cwd if isinstance(cwd, str) else self._cwd):
                self._ids.add(call.id)
                self.withheld[path] = None
        for identity, output, *_ in self._converter.decode(record).results:
            if identity not in self._ids and (path := self._hidden.shown_in(output, self._cwd)):
                self._ids.add(identity)
                self.withheld[path] = None

    def _without_files(self, record: Record) -> Record:
        # Compared, not hashed: what stands in the place of an id may be anything.
        new = self._converter.withheld(record, tuple(self._ids), WITHHELD) if self._ids else record
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
            if image := self._converter.image(value):
                self.left_out[IMAGES] += 1
                return image.instead(_note(image.kind, image.size))
            return {name: self._without_images(part, depth + 1) for name, part in value.items()}
        return value

    def _left_out(self, found: re.Match[str]) -> str:
        self.left_out[IMAGES] += 1
        return _note(found[1], len(found[2]) * 3 // 4)


def _note(kind: str, size: int) -> str:
    """Return the text that replaces a removed image in a record: ``[image dropped: png, 120 kB]``."""
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
