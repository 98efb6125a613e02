"""A session's conversation on the page: its exchanges and steps, an outline, its forks, and later changes.

Links and forms of a page carry a mark (a digest of the session's state that the page showed). So a message number from
an old page is never taken for a message after a cut.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from indexer.export import LABELS
from indexer.lazy import dataclass
from indexer.masking import Masked, beginning, knowing, mask, shorten
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import Exchange, Session, Turn
from smart_fork.agents.codec import Codec, revealed_secrets
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, SmartForkError, Usage
from smart_fork.finding.conversation import Message
from smart_fork.finding.hit import Hit
from smart_fork.finding.index_access import opened
from smart_fork.finding.result_snippets import matched_words
from smart_fork.finding.results import title
from smart_fork.forking.lineage import forks_of
from smart_fork.forking.results import Relative
from smart_fork.page.agent_steps import PageStep, Steps
from smart_fork.page.renderer import PageValues

if TYPE_CHECKING:
    from indexer.store.base import Placement
    from indexer.store.sqlite import Store

Became = Literal["same", "more", "another", "gone"]
_MARK = re.compile(r"([0-9]{1,9})-([0-9a-f]{16})-([0-9a-f]{16})")


class Mark(NamedTuple):
    """A session's state as a page showed it: its number of turns, a digest of all but the last, and one of all.

    The last turn may still grow.
    """

    turns: int
    before: str
    whole: str

    def __str__(self) -> str:
        return f"{self.turns}-{self.before}-{self.whole}"


@dataclass(frozen=True, slots=True)
class ChangeSinceShown(PageValues):
    """The change of a session since a page showed it. `became` is "same", "more", "another" or "gone".

    "more" means new messages: `messages` counts them, and `first` is the number of the first new turn. "another" means
    that turns which the page showed have changed. "gone" means that the session's log does not exist.
    """

    became: Became
    first: int | None = None
    messages: int = 0


def mark_of(session: Session, turns: int | None = None) -> Mark:
    """Compute the mark (a digest of the state that a page shows) of a session, or of its first `turns` turns."""
    shown, digest = session.turns[:turns], blake2b(digest_size=8)
    before = digest.hexdigest()
    for turn in shown:
        before = digest.hexdigest()
        digest.update(_said(turn))
    return Mark(len(shown), before, digest.hexdigest())


def mark_in(text: str) -> Mark:
    """Parse the mark (a digest of a session's state) of an address or a form.

    Raises:
        Usage: `text` is not a mark.
    """
    found = _MARK.fullmatch(text)
    if found is None:
        raise Usage("Not a valid state of a session", "Open the session again.")
    return Mark(int(found[1]), found[2], found[3])


def change_since(mark: Mark, session: Session) -> ChangeSinceShown:
    """Return the change of a session since a page showed it in the state `mark` (a digest of its turns).

    If only the last turn of that state has grown, the change is "more" (new messages), not "another" (changed turns).
    """
    now = mark_of(session, mark.turns)
    if now == mark and len(session.turns) == mark.turns:
        return ChangeSinceShown("same")
    if not mark.turns or (now.turns, now.before) != (mark.turns, mark.before):
        return ChangeSinceShown("another")
    first = mark.turns if now == mark else mark.turns - 1
    return ChangeSinceShown("more", first, sum(number >= mark.turns for number, _ in session.messages))


def refuse_changed_session(mark: str, session: Session) -> None:
    """Refuse an action on a page if the session has changed since. `mark` is a digest of the shown state, or empty.

    Raises:
        ForkRefused: the session has changed: it was cut, or resumed from an earlier message.
    """
    if mark and change_since(mark_in(mark), session).became == "another":
        raise ForkRefused(
            "The session has changed: part of it was cut, or it was resumed from an earlier message",
            "Open the session again, and choose there.",
        )


def change_at_address(place: Mapping[str, str], mark: Mark) -> ChangeSinceShown:
    """Return the change of the session at an address since its state had the digest `mark`.

    The log is read only if it has changed.

    Raises:
        OSError: the log cannot be read now.
    """
    agent, session_id = place["agent"], place["session_id"]
    log = READERS.original_of(agent, session_id) if agent in READERS.names else None
    there = READERS[agent].log_at(str(log)) if log is not None else None
    return ChangeSinceShown("gone") if there is None else _looked(there, mark)


@lru_cache(maxsize=64)
def _looked(log: LogFile, mark: Mark) -> ChangeSinceShown:
    session = READERS[log.agent].read(Path(log.location)).session
    return ChangeSinceShown("another") if session is None else change_since(mark, session)


def _said(turn: Turn) -> bytes:
    """Return a turn's content as bytes for a digest: its id, role, text, actions and notes of results."""
    did = [*(call.action for call in turn.tool_calls), *(result.note for result in turn.tool_results)]
    return "\0".join((turn.id, turn.role, str(len(turn.text)), turn.text, *did)).encode("utf-8", "surrogatepass")


#: The limits of a page: exchanges, characters (more only for a single exchange), and characters shown of a message.
PAGE_EXCHANGES, PAGE_CHARACTERS, MESSAGE_CHARACTERS = 400, 3_000_000, 40_000
#: The characters of a prompt that the page uses as the name of its exchange.
QUESTION_CHARACTERS = 120
#: The roles of turns that are messages.
SPEAK = ("user", "assistant")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """One message of a conversation, and the agent's steps up to the next message.

    `asked` is True if the page's address names this message or one of these steps.
    """

    number: int
    role: str
    timestamp: str
    text: str
    steps: tuple[PageStep, ...]
    asked: bool

    @property
    def failures(self) -> int:
        """Return the number of failed steps after this message."""
        return sum(step.failed for step in self.steps)

    @property
    def thoughts(self) -> int:
        return sum(step.kind == "thought" for step in self.steps)


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A line of a conversation's outline, for one exchange (a prompt with its answer), from message `number` on.

    `here` is True if the current page shows the exchange. `point` is the message after which the session can be forked.
    """

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
    """A prompt with all messages and steps up to the next prompt, and its line in the outline."""

    entry: OutlineEntry
    messages: tuple[ShownMessage, ...]


class ShownExchanges:
    """The exchanges on one page of a conversation. Each is built only when the template reaches it."""

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
    """One page of a long conversation. `page` counts from 1; `count` is the number of messages.

    `previous` and `next_at` are message numbers that lead to the pages before and after it.
    """

    exchanges: ShownExchanges
    outline: tuple[OutlineEntry, ...]
    page: int
    pages: int
    count: int
    previous: int | None
    next_at: int | None

    @property
    def matching(self) -> tuple[OutlineEntry, ...]:
        """Return the outline's entries of exchanges that contain at least half of the question's words."""
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
    """Build the page of a conversation with message or step number `at`, or the first page.

    With `whole`, it has the entire conversation without thoughts, for a file to send to others. `words` are the search
    question's words. `work` reads the agent's records. `begun` maps tool calls to the sub-agents that they started.

    Raises:
        NotFound: the conversation has no message or step `at`.
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
    """Split exchanges into pages of limited size. Return the index of the first exchange of each page."""
    starts, used = [0], 0
    for place, exchange in enumerate(exchanges):
        size = sum(min(len(turn.text), MESSAGE_CHARACTERS) for turn in exchange.turns)
        if place - starts[-1] == PAGE_EXCHANGES or (used and used + size > PAGE_CHARACTERS):
            starts.append(place)
            used = 0
        used += size
    return starts


class _Reading:
    """A session with all that is computed once to build its page: exchanges, steps, fork points and token counts.

    `at` is the message that a link leads to, `words` are the words of the question, and `known` are secrets to mask.
    """

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
        """Return the outline's entry for an exchange. `here` tells if the current page shows it."""
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
        """Yield the messages of the exchange with index `place`, each with the steps up to the next one."""
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
                one = Message.of(number, voice, MESSAGE_CHARACTERS)
                text = one.text if voice.role in SPEAK else ""
                by = "user" if voice.role == "user" else "assistant"
                yield ShownMessage(number, by, one.timestamp, text, steps, asked)
                steps, asked = (), False

    def _matches(self, exchange: Exchange) -> bool:
        """Return True if an exchange contains at least half of the question's words."""
        if not self._words:
            return False
        said = "\n".join(one.text for turn in exchange.turns for one in turn.spoken)
        return 2 * len(matched_words(said, self._words)) >= len(self._words)


def asked_in_short(question: str) -> Masked:
    """Shorten a prompt to one line, which names its exchange on the page."""
    return shorten(title(question), QUESTION_CHARACTERS)


def forks_by_exchange(page: ConversationPage, forks: Iterable[tuple[int, Relative]]) -> dict[int, list[Relative]]:
    """Group a session's forks by the exchange (a prompt with its answer) after which they differ.

    `forks` are pairs: the last shared message, and the fork. The keys are the numbers of the exchanges' first messages.
    """
    numbers = [entry.number for entry in page.outline]
    found: dict[int, list[Relative]] = {}
    for message, fork in forks:
        if (place := bisect_right(numbers, message) - 1) >= 0:
            found.setdefault(numbers[place], []).append(fork)
    return found


class LazyForks:
    """A session's forks, searched only when a template asks for them, after the page's beginning is sent."""

    def __init__(self, session: Session, page: ConversationPage) -> None:
        self._session, self._page = session, page

    def at(self, number: int) -> Sequence[Relative]:
        """Return the forks made in the exchange whose first message is `number`."""
        return self._known.get(number, ())

    @cached_property
    def _known(self) -> dict[int, list[Relative]]:
        try:
            forks = forks_of(self._session)
        except (SmartForkError, OSError) as error:  # another's log cannot be read: this one can
            log.warning("the forks of %s are not known: %s", self._session.session_id, error)
            return {}
        return forks_by_exchange(self._page, [(one.left_parent_at.message, one) for one in forks if one.left_parent_at])


#: The number of passages, at the beginning or the end of an exchange, in which the other side is searched.
_LOOKED_AT = 8
#: The characters shown of the other side of an exchange.
OTHER_CHARACTERS = 240


@dataclass(frozen=True, slots=True)
class ExchangeSide:
    """One side of an exchange: its speaker, and its prompt or answer. The search has `found` this text, or not."""

    by: str
    text: Masked
    found: bool


def spoken(hits: Iterable[Hit]) -> Mapping[str, tuple[ExchangeSide, ...]]:
    """Return, by session id, the exchange (prompt and answer) in which the search found each hit (found session).

    Hits without a passage, and hits from teammates' machines, are missing.
    """
    wanted = [hit for hit in hits if hit.snippet and hit.origin is None and hit.match.exchange is not None]
    try:
        with opened() as store:
            return {hit.session_id: tuple(_spoken_exchange(hit, store)) for hit in wanted}
    except IndexUnavailable:
        return {}


def _spoken_exchange(hit: Hit, store: Store) -> Iterator[ExchangeSide]:
    """Yield the prompt and the answer of the exchange in which the search found a hit (a session).

    One side is the passage that was found, the other is shortened. The agent's actions replace an answer without text.
    """
    found = ExchangeSide(hit.said_by or "", mask(hit.snippet or ""), found=True)
    roles = {"user": ("assistant", "action"), "assistant": ("user",)}.get(found.by, ())
    row = store.session(hit.agent_type, hit.session_id) if roles else None
    places = [
        one for one in (store.placements_of(row.row) if row else ()) if one.exchange == (hit.match.exchange or 1) - 1
    ]
    near = places[:_LOOKED_AT] if found.by == "assistant" else places[-_LOOKED_AT:]
    texts = store.texts([place.chunk for place in near])
    parts = [part for place in near for part in _spoken_parts(place, texts.get(place.chunk, ""), store)]
    if found.by == "user":
        parts.reverse()
    said = next((said for role in roles for by, said in parts if by == role and said), "")
    text = mask(printable(said))
    other = "user" if found.by == "assistant" else "assistant"
    beside = [ExchangeSide(other, beginning(text, OTHER_CHARACTERS), found=False)] if text else []
    yield from (*beside, found) if found.by == "assistant" else (found, *beside)


def _spoken_parts(place: Placement, text: str, store: Store) -> Iterator[tuple[str, str]]:
    """Split an indexed passage by speaker: yield each speaker's role and text."""
    starts: list[tuple[int, str]] = [(0, place.role), *(store.voices(place) or ()), (len(text), "")]
    for (start, by), (end, _) in pairwise(starts):
        yield by, text[start:end].removeprefix(LABELS["user"] if by == "user" else "").strip()
