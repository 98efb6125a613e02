"""A session to read: its exchanges with what was said and done in them, an outline, where a fork may leave,
and what is new since a page has shown it.

What a page was shown of is told by a mark, which stands in its links and forms: so numbers of messages that were seen
there are never taken for those of a session that has been cut, or gone on from an earlier message, meanwhile.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Literal, NamedTuple

from indexer.lazy import dataclass
from indexer.masking import Masked, knowing, shorten
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import Exchange, Session, Turn
from smart_fork.agents.codec import Codec
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.revealed_secrets import revealed_secrets
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.finding import sessions
from smart_fork.finding.quotations import matched_words
from smart_fork.finding.results import title
from smart_fork.forking.results import Relative
from smart_fork.page.renderer import PageValues
from smart_fork.page.steps import PageStep, Steps

Became = Literal["same", "more", "another", "gone"]
_MARK = re.compile(r"([0-9]{1,9})-([0-9a-f]{16})-([0-9a-f]{16})")


class Mark(NamedTuple):
    """The number of a session's turns, with digests of those before the last, which may still change, and of all."""

    turns: int
    before: str
    whole: str

    def __str__(self) -> str:
        return f"{self.turns}-{self.before}-{self.whole}"


@dataclass(frozen=True, slots=True)
class Since(PageValues):
    """Changes of a session. If it grew, there are `messages`, new ones from turn number `first` on."""

    became: Became
    first: int | None = None
    messages: int = 0


def mark_of(session: Session, turns: int | None = None) -> Mark:
    """The mark of a session, or of its first `turns`."""
    shown, digest = session.turns[:turns], blake2b(digest_size=8)
    for turn in shown[:-1]:
        digest.update(_said(turn))
    before = digest.hexdigest()
    for turn in shown[-1:]:
        digest.update(_said(turn))
    return Mark(len(shown), before, digest.hexdigest())


def mark_in(text: str) -> Mark:
    """The mark that an address or a form has.

    Raises:
        Usage: it is none.
    """
    found = _MARK.fullmatch(text)
    if found is None:
        raise Usage("Not a valid state of a session", "Open the session again.")
    return Mark(int(found[1]), found[2], found[3])


def since(mark: Mark, session: Session) -> Since:
    """Compare a session with what was shown. Its last turn may have grown."""
    now = mark_of(session, mark.turns)
    if now == mark and len(session.turns) == mark.turns:
        return Since("same")
    if not mark.turns or (now.turns, now.before) != (mark.turns, mark.before):
        return Since("another")
    first = mark.turns if now == mark else mark.turns - 1
    return Since("more", first, sum(number >= mark.turns for number, _ in session.messages))


def check_still(mark: str, session: Session) -> None:
    """Refuse what is asked of a page that has shown another state of a session; without a mark nothing is known.

    Raises:
        Usage: the mark is none.
        ForkRefused: it is another one.
    """
    if mark and since(mark_in(mark), session).became == "another":
        raise ForkRefused(
            "The session has changed: part of it was cut, or it was resumed from an earlier message",
            "Open the session again, and choose there.",
        )


def looked_at(place: Mapping[str, str], mark: Mark) -> Since:
    """Return the changes of the session at an address. An unchanged log is not read again.

    Raises:
        OSError: that cannot be told now.
    """
    agent, session_id = place["agent"], place["session_id"]
    log = READERS.original_of(agent, session_id) if agent in READERS.names else None
    there = READERS[agent].log_at(str(log)) if log is not None else None
    return Since("gone") if there is None else _looked(there, mark)


@lru_cache(maxsize=64)
def _looked(log: LogFile, mark: Mark) -> Since:
    session = READERS[log.agent].read(Path(log.location)).session
    return Since("another") if session is None else since(mark, session)


def _said(turn: Turn) -> bytes:
    """All of a turn that a page shows of it without its record."""
    did = [*(call.action for call in turn.tool_calls), *(result.note for result in turn.tool_results)]
    return "\0".join((turn.id, turn.role, str(len(turn.text)), turn.text, *did)).encode("utf-8", "surrogatepass")


#: A page has so many exchanges, and so much text, unless one exchange alone is longer; of a message so much is shown.
PAGE_EXCHANGES, PAGE_CHARACTERS, MESSAGE_CHARACTERS = 400, 3_000_000, 40_000
#: How much of a question names its exchange.
QUESTION_CHARACTERS = 120
#: Whose turns are messages.
SPEAK = ("user", "assistant")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message, and the steps behind it. `asked`: it, or one of these, is what a link led to."""

    number: int
    role: str
    timestamp: str
    text: str
    steps: tuple[PageStep, ...]
    asked: bool

    @property
    def failures(self) -> int:
        """The number of failed steps."""
        return sum(step.failed for step in self.steps)

    @property
    def thoughts(self) -> int:
        """The number of steps that are thoughts."""
        return sum(step.kind == "thought" for step in self.steps)


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """An exchange in a line. `here` is whether this page has it, `point` the message that a fork leaves after."""

    place: int
    number: int
    question: str
    tokens: int
    edits: int = 0
    failed: int = 0
    matches: bool = False
    asked: bool = False
    here: bool = True
    point: int | None = None


@dataclass(frozen=True, slots=True)
class ShownExchange:
    """A prompt, and everything up to the next one."""

    entry: OutlineEntry
    messages: tuple[ShownMessage, ...]


class ShownExchanges:
    """Those of a page. Each is made when it is its turn to be shown."""

    def __init__(self, reading: _Reading, entries: Sequence[OutlineEntry]) -> None:
        self._reading, self._entries = reading, entries

    def __iter__(self) -> Iterator[ShownExchange]:
        for entry in self._entries:
            with knowing(self._reading.known):
                shown = ShownExchange(entry, tuple(self._reading.messages(entry.place - 1)))
            yield shown

    def __len__(self) -> int:
        return len(self._entries)


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of a conversation. `page` counts from 1; `previous` and `next_at` are messages of other pages."""

    exchanges: ShownExchanges
    outline: tuple[OutlineEntry, ...]
    page: int
    pages: int
    count: int
    previous: int | None
    next_at: int | None

    @property
    def matching(self) -> tuple[OutlineEntry, ...]:
        """The exchanges in which the words of the question stand."""
        return tuple(entry for entry in self.outline if entry.matches)


def reading(
    session: Session,
    at: int | None = None,
    *,
    words: Sequence[str] = (),
    work: Codec | None = None,
    begun: Mapping[str, str] | None = None,
    whole: bool = False,
) -> ConversationPage:
    """The page that has message or step number `at`; without it, the first; or the `whole` conversation.

    `begun` are the sub-agents that can be read, by the calls that have begun them. The whole is without thoughts: it is
    for a file, which is sent to others.

    Raises:
        NotFound: the conversation has no such number.
    """
    if at is not None and not 0 <= at < len(session.turns):
        last = next((number for number, _ in reversed(session.messages)), 0)
        raise NotFound(f"No message {at} in {session.session_id}", f"The last one is {last}.")
    known = revealed_secrets((turn.raw for turn in session.turns), work)
    told = _Reading(session, at, words, Steps(session, work, begun, thoughts=not whole), known)
    starts = [0] if whole else _starts(told.exchanges)
    asked = bisect_right([one.start for one in told.exchanges], at) - 1 if at is not None else 0
    page = max(0, bisect_right(starts, asked) - 1)
    first, end = starts[page], (*starts[1:], len(told.exchanges))[page]
    with knowing(known):
        entries = [told.entry(place, here=first <= place < end) for place in range(len(told.exchanges))]
    return ConversationPage(
        ShownExchanges(told, entries[first:end]), tuple(entries), page + 1, len(starts), len(session.messages),
        entries[starts[page - 1]].number if page else None, entries[end].number if end < len(entries) else None,
    )  # fmt: skip


def _starts(exchanges: Sequence[Exchange]) -> list[int]:
    """With which exchanges pages begin; there is one page at least."""
    starts, used = [0], 0
    for place, exchange in enumerate(exchanges):
        size = sum(min(len(turn.text), MESSAGE_CHARACTERS) for turn in exchange.turns)
        if place - starts[-1] == PAGE_EXCHANGES or (used and used + size > PAGE_CHARACTERS):
            starts.append(place)
            used = 0
        used += size
    return starts


class _Reading:
    """A session that is read: `at` is where a link led to, `words` are those of a question, `known` its secrets."""

    def __init__(
        self, session: Session, at: int | None, words: Sequence[str], steps: Steps, known: Sequence[str]
    ) -> None:
        self.known = known
        self._session, self._at, self._words = session, at, tuple(words)
        self.exchanges = session.exchanges()
        self._steps, self._points, self._loads = steps, session.branch_points(), session.loads()
        self._failed = {
            one.tool_use_id for turn in session.turns for one in turn.tool_results if one.is_error or one.note
        }

    def entry(self, place: int, *, here: bool) -> OutlineEntry:
        """An exchange in the outline."""
        exchange = self.exchanges[place]
        start, end = exchange.start, exchange.start + len(exchange.turns)
        calls = [call for turn in exchange.turns for call in turn.tool_calls if not call.ours]
        spoken = [number for number, turn in enumerate(exchange.turns, start) if turn.text and turn.role != "system"]
        last = bisect_left(self._points, end) - 1
        point = self._points[last] if last >= 0 and self._points[last] >= start else None
        question = next((turn.text for turn in exchange.turns if turn.prompt), "")
        return OutlineEntry(
            place=place + 1, number=spoken[0] if spoken else start, question=asked_in_short(question),
            tokens=self._loads[end - 1 if point is None else point], edits=sum(bool(call.edits) for call in calls),
            failed=sum(call.id in self._failed for call in calls), matches=self._matches(exchange),
            asked=self._at is not None and start <= self._at < end, here=here, point=point,
        )  # fmt: skip

    def messages(self, place: int) -> Iterator[ShownMessage]:
        """Yield the messages of an exchange, each with the steps until the next."""
        exchange = self.exchanges[place]
        end = exchange.start + len(exchange.turns)
        begins = [n for n, turn in enumerate(exchange.turns, exchange.start) if turn.spoken]
        if not begins or begins[0] != exchange.start:
            begins.insert(0, exchange.start)
        for number, until in zip(begins, (*begins[1:], end), strict=True):
            turn = self._session.turns[number]
            steps = tuple(step for behind in range(number, until) for step in self._steps.of(behind))
            asked = self._at is not None and number <= self._at < until
            for voice in turn.spoken or ((turn,) if steps else ()):
                one = sessions.message(number, voice, MESSAGE_CHARACTERS)
                text = one.text if voice.role in SPEAK else ""
                by = "user" if voice.role == "user" else "assistant"
                yield ShownMessage(number, by, one.timestamp, text, steps, asked)
                steps, asked = (), False

    def _matches(self, exchange: Exchange) -> bool:
        """Return True if an exchange has at least half of the words."""
        if not self._words:
            return False
        said = "\n".join(one.text for turn in exchange.turns for one in turn.spoken)
        return 2 * len(matched_words(said, self._words)) >= len(self._words)


def asked_in_short(question: str) -> Masked:
    """Return a prompt as a line that names its exchange."""
    return shorten(title(question), QUESTION_CHARACTERS)


def leaving(page: ConversationPage, forks: Iterable[tuple[int, Relative]]) -> dict[int, list[Relative]]:
    """Forks with the messages after which they left, by the numbers of the exchanges in which these stand."""
    numbers = [entry.number for entry in page.outline]
    found: dict[int, list[Relative]] = {}
    for message, fork in forks:
        if (place := bisect_right(numbers, message) - 1) >= 0:
            found.setdefault(numbers[place], []).append(fork)
    return found


class LeftForks:
    """The forks of a session, looked for when it is first asked for them: it is read before they are known."""

    def __init__(self, session: Session, page: ConversationPage) -> None:
        self._session, self._page = session, page

    def at(self, number: int) -> Sequence[Relative]:
        """Those that left in the exchange that begins with this number."""
        return self._known.get(number, ())

    @cached_property
    def _known(self) -> dict[int, list[Relative]]:
        from smart_fork.forking.lineage import forks_of

        try:
            forks = forks_of(self._session)
        except (SmartForkError, OSError) as error:  # another's log cannot be read: this one can
            log.warning("the forks of %s are not known: %s", self._session.session_id, error)
            return {}
        return leaving(self._page, [(one.left_parent_at.message, one) for one in forks if one.left_parent_at])
