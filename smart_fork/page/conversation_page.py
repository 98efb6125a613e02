"""A session's conversation on the page: its exchanges and steps, an outline, and its forks."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, beginning, knowing, mask, shorten
from indexer.session_export import LABELS
from indexer.transcripts.model import Exchange, Session
from smart_fork.agents.decoders import Codec, revealed_secrets
from smart_fork.display_text import printable
from smart_fork.errors import IndexUnavailable, NotFound, SmartForkError
from smart_fork.finding.conversation import Message
from smart_fork.finding.hit import Hit
from smart_fork.finding.index_access import opened
from smart_fork.finding.result_snippets import matched_words
from smart_fork.finding.results import title
from smart_fork.forking.lineage import forks_of
from smart_fork.forking.results import Relative
from smart_fork.page.agent_steps import PageStep, Steps

if TYPE_CHECKING:
    from indexer.store.base import Placement
    from indexer.store.sqlite import Store


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

    `asked` is True if the page's address has the number of this message, or of a turn with one of these steps.
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

    `here` is True if the current page shows the exchange, and `asked` if the page's address has a number in it. `point`
    is the last message in the exchange at which the session can be forked, if there is one.
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
    """The exchanges on one page of a conversation, those in `shown`. Each is built when the template reaches it.

    `at` is the turn in the page's address, `words` are the words of the question, and `known` are secrets to mask.
    """

    def __init__(
        self, session: Session, at: int | None, words: Sequence[str], steps: Steps, known: Sequence[str]
    ) -> None:
        self.shown: Sequence[OutlineEntry] = ()
        self._known = known
        self._session, self._at, self._words = session, at, tuple(words)
        self.all = session.exchanges()
        self._steps, self._points, self._loads = steps, session.branch_points(), session.loads()
        self._failed = {
            one.tool_use_id for turn in session.turns for one in turn.tool_results if one.is_error or one.note
        }

    def __iter__(self) -> Iterator[ShownExchange]:
        for entry in self.shown:
            with knowing(self._known):
                exchange = ShownExchange(entry, tuple(self._messages(entry.place - 1)))
            yield exchange

    def __len__(self) -> int:
        return len(self.shown)

    def entry(self, place: int, *, here: bool) -> OutlineEntry:
        """Return the outline's entry for the exchange with index `place`. With `here`, the current page shows it."""
        exchange = self.all[place]
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

    def _messages(self, place: int) -> Iterator[ShownMessage]:
        """Yield the messages of the exchange with index `place`, each with the steps up to the next one."""
        exchange = self.all[place]
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


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """One page of a long conversation. `page` is its number, from 1; `count` is the number of messages on all pages.

    `previous` and `next_at` are the numbers of the first messages on the pages before and after it.
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
    codec: Codec | None = None,
    begun: Mapping[str, str] | None = None,
    whole: bool = False,
) -> ConversationPage:
    """Build the page of a conversation that contains turn number `at`, or the first page.

    With `whole`, the page has the entire conversation without thoughts, for a file to send to others. `words` are the
    search question's words. `codec` decodes the agent's records, `begun` maps ids of tool calls to sub-agents' names.

    Raises:
        NotFound: the conversation has no turn `at`.
    """
    if at is not None and not 0 <= at < len(session.turns):
        last = next((number for number, _ in reversed(session.messages)), 0)
        raise NotFound(f"No message {at} in {session.session_id}", f"The last one is {last}.")
    known = revealed_secrets((turn.raw for turn in session.turns), codec)
    told = ShownExchanges(session, at, words, Steps(session, codec, begun, thoughts=not whole), known)
    starts = [0] if whole else _starts(told.all)
    asked = bisect_right([one.start for one in told.all], at) - 1 if at is not None else 0
    page = max(0, bisect_right(starts, asked) - 1)
    first, end = starts[page], (*starts[1:], len(told.all))[page]
    with knowing(known):
        entries = [told.entry(place, here=first <= place < end) for place in range(len(told.all))]
    told.shown = entries[first:end]
    return ConversationPage(
        told, tuple(entries), page + 1, len(starts), len(session.messages),
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


def asked_in_short(question: str) -> Masked:
    """Shorten a prompt to one line, the name of its exchange on the page."""
    return shorten(title(question), QUESTION_CHARACTERS)


def forks_by_exchange(page: ConversationPage, forks: Iterable[tuple[int, Relative]]) -> dict[int, list[Relative]]:
    """Group a session's forks by the exchange (a prompt with its answer) at which they were forked.

    `forks` are pairs of the last shared message's number and the fork. The keys are the numbers of the exchanges' first
    messages.
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
        """Return the forks after a message of the exchange that begins with message `number`."""
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
    """The prompt or the answer of an exchange, and its speaker. `found` is True for the text that the search found."""

    by: str
    text: Masked
    found: bool


def exchanges_of_hits(hits: Iterable[Hit]) -> Mapping[str, tuple[ExchangeSide, ...]]:
    """Return the matching exchange (prompt and answer) of each hit (found session), by session id.

    Hits without a passage, and hits from teammates' machines, are missing.
    """
    wanted = [hit for hit in hits if hit.snippet and hit.origin is None and hit.match.exchange is not None]
    try:
        with opened() as store:
            return {hit.session_id: tuple(_exchange_of(hit, store)) for hit in wanted}
    except IndexUnavailable:
        return {}


def _exchange_of(hit: Hit, store: Store) -> Iterator[ExchangeSide]:
    """Yield the prompt and the answer of the exchange that a hit's passage is from.

    One of them is the passage itself, the other is shortened. The agent's actions replace an answer without text.
    """
    found = ExchangeSide(hit.said_by or "", mask(hit.snippet or ""), found=True)
    roles = {"user": ("assistant", "action"), "assistant": ("user",)}.get(found.by, ())
    row = store.session(hit.agent_type, hit.session_id) if roles else None
    places = [
        one for one in (store.placements_of(row.row) if row else ()) if one.exchange == (hit.match.exchange or 1) - 1
    ]
    near = places[:_LOOKED_AT] if found.by == "assistant" else places[-_LOOKED_AT:]
    texts = store.texts([place.chunk for place in near])
    parts = [part for place in near for part in _parts_by_speaker(place, texts.get(place.chunk, ""), store)]
    if found.by == "user":
        parts.reverse()
    said = next((said for role in roles for by, said in parts if by == role and said), "")
    text = mask(printable(said))
    other = "user" if found.by == "assistant" else "assistant"
    beside = [ExchangeSide(other, beginning(text, OTHER_CHARACTERS), found=False)] if text else []
    yield from (*beside, found) if found.by == "assistant" else (found, *beside)


def _parts_by_speaker(place: Placement, text: str, store: Store) -> Iterator[tuple[str, str]]:
    """Split the indexed passage at `place`, with this `text`, by speaker: yield each speaker's role and text."""
    starts: list[tuple[int, str]] = [(0, place.role), *(store.voices(place) or ()), (len(text), "")]
    for (start, by), (end, _) in pairwise(starts):
        yield by, text[start:end].removeprefix(LABELS["user"] if by == "user" else "").strip()
