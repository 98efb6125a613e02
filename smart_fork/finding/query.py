"""What the person typed -> a full-text query. Every word is quoted: nothing typed can be an operator."""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexer.export import PieceRole
from indexer.lazy import dataclass
from indexer.store.base import HavingTable, Placement, Scope, Scored, Searchable, SessionRow, WordTable, bigrams
from indexer.transcripts.model import AgentName
from smart_fork.errors import is_empty
from smart_fork.finding.ranking import Score

if TYPE_CHECKING:
    from smart_fork.finding.answer import Mode
    from smart_fork.finding.session_view import WroteLines


#: What is asked in more characters than this is answered by its beginning.
MAX_CHARACTERS = 4000
MAX_WORDS = 48
#: The points against every session for a question of so many words; none for one of so few, and no step between them.
LONG_DOUBT, SHORT_WORDS = 0.4, 16
#: The points against every session for a short prompt to an agent: who searches remembers a session, a prompt need not
#: have one. A plan of so many words says enough to be told by.
PROMPT_DOUBT, PLAN_WORDS = 2.5, 150
#: The points against every session where it knows none of so many names, and the share from which on there are none.
STRANGE_DOUBT, SEVERAL_NAMES, KNOWN_NAMES = 2.5, 2, 0.3
#: A question of so many words is searched without what only says how to work.
LONG_WORDS = 24
#: Longer words are random data, and a phrase of more words than this is found by its beginning.
MAX_WORD_CHARACTERS, MAX_PHRASE_WORDS = 64, 8

_WORD = re.compile(r"\w+")
_COMPOUND = re.compile(r"[\w./:-]+")
#: Paths, names of files, and names of code: snake_case, camelCase. Each begins where a word does, so that a long text
#: is read once.
_NAME = re.compile(
    r"(?<![\w.~@-])(?:[\w.~@-]*+/)+[\w.@-]+"
    r"|(?<![\w.-])[\w-]++(?:\.[\w-]++)*\.[A-Za-z]\w{0,4}\b"
    r"|\b[A-Za-z]\w*(?:_\w|[a-z0-9][A-Z])\w*"
)
#: A pull request or an issue by its number, as people write it and as its address ends.
_NUMBERED = re.compile(
    r"https?://\S+?/(?:pull|issues|merge_requests)/(\d+)\S*"
    r"|\b(?:prs?|pull request|mr|merge request|issue) ?[#!]?(\d+)\b",
    re.IGNORECASE,
)
#: More names of one question are not looked for.
MAX_NAMES = 64
#: Words that say nothing about what a session is about; left out unless nothing else was typed.
_STOP = frozenset(
    """
    a about after all also am an and any are as at be because been before being but by can cannot could did do does
    doing don down each few for from further had has have having he her here hers him his how i if in into is it its
    itself just let like make me more most my need no nor not now of off on once only or other our out over own
    please same she should so some such than that the their them then there these they this those through to too
    under until up us use using very want was we were what when where which while who whom why will with would you
    your
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)


#: The end of a sentence, with or without another one; how a prompt speaks to an agent; how long a sentence is without.
_SENTENCE = re.compile(r"[.?!](?:\s+[A-Z]|\s*$)")
_ADDRESS = re.compile(r"\b(?:please|can you|could you|let'?s)\b|(?<!\w)@[\w./]", re.IGNORECASE)
SENTENCE_OF_WORDS = 9
#: A prompt that begins with a command of its agent.
_COMMAND = re.compile(r"^\s*/[\w:-]+(?!\S)")
#: Words of any prompt, in the singular, that name no work.
_EVERYWHERE = frozenset(
    """
    add again agent anything branch break broken bug build change check ci clean code comment commit complete continue
    create description do done error everything fail failed failing failure feature feedback file finish fix fixed
    function get git go good hello help hey hi implement implementation improve issue it keep last left lint linter
    linting look main make merge missing model my new next ok open path plan please pr problem project prompt pull push
    quick quickly read ready red refactor remaining request resolve resume review right run see session ship show side
    small something start still task test thank thing todo try unit update valid version whole work working write wrong
    yes
    """.split()  # noqa: SIM905 - easier to read than so many quotes
)


def plain(intent: str) -> str:
    """`intent` as it can be searched, embedded and repeated: without NUL and half surrogates, of bounded length."""
    text = intent[:MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()
    return "" if is_empty(text) else text


def words_of(text: str) -> tuple[str, ...]:
    """The words to search for, in order, once each, lower case, without stop words where that leaves any.

    A pull request's address and number are none: they would find every other pull request.
    """
    named = _WORD.findall(bigrams(_NUMBERED.sub(" ", text)))
    words = list(dict.fromkeys(word.lower()[:MAX_WORD_CHARACTERS] for word in named))
    telling = [word for word in words if word not in _STOP and (len(word) > 1 or not word.isascii())]
    return tuple((telling or words)[:MAX_WORDS])


def doubt_of(text: str, words: int | None = None, strange: float = 0.0) -> float:
    """Return the points against every session: for a long question, which has something in common with most of them,
    for a short prompt, which may ask for what is new (it may have more `words`, which only say how to work), and for
    names that are `strange` (0…1) to all sessions.
    """
    long = max(0.0, (len(words_of(text)) - SHORT_WORDS) / (MAX_WORDS - SHORT_WORDS))
    short = max(0.0, 1 - (words or len(text.split())) / PLAN_WORDS) if is_prompt(text) else 0.0
    return LONG_DOUBT * long + PROMPT_DOUBT * short + STRANGE_DOUBT * strange


def is_prompt(text: str) -> bool:
    """Tell if `text` is written to an agent, and not to search with: it addresses it, or has a whole sentence."""
    sentence = text[:1].isupper() and (_SENTENCE.search(text) or len(text.split()) >= SENTENCE_OF_WORDS)
    return bool(sentence or "\n" in text or _ADDRESS.search(text))


def unnamed(text: str) -> str:
    """Return the sentence that asks which work is meant, if all words of `text` but an agent's command are of every
    prompt; else nothing.
    """
    words = words_of(_COMMAND.sub("", text))
    nothing = all(
        word.isdigit() or (word.isascii() and (len(word) == 1 or word.rstrip("s") in _EVERYWHERE)) for word in words
    )
    return "This names no work: say which. " if nothing else ""


def terms_of(text: str) -> tuple[str, ...]:
    """The words, and whole compounds (``src/upload.py``) as phrases, each quoted as FTS5 wants it.

    A pull request is a compound of what it is called and its number.
    """
    numbered = [
        f"{kind}/{one[1] or one[2]}"
        for one in _NUMBERED.finditer(text)
        for kind in (("issue",) if "issue" in one[0].lower() else ("pull", "pr"))
    ]
    phrases = dict.fromkeys(map(_phrase, (*_COMPOUND.findall(_NUMBERED.sub(" ", text.lower())), *numbered)))
    compounds = [bigrams(" ".join(phrase)) for phrase in phrases if len(phrase) > 1][:MAX_WORDS]
    return tuple(dict.fromkeys(f'"{term}"' for term in (*words_of(text), *compounds)))


def names_of(text: str) -> tuple[str, ...]:
    """The files and names of code that `text` speaks of, as `quoted_names`."""
    return quoted_names(_NAME.findall(text))


def quoted_names(given: Iterable[str]) -> tuple[str, ...]:
    """Files and names of code, each quoted as FTS5 wants it; of a long path its end."""
    names = (_WORD.findall(name.lower().replace("_", " ")) for name in given)
    phrases = dict.fromkeys(" ".join(word[:MAX_WORD_CHARACTERS] for word in name[-MAX_PHRASE_WORDS:]) for name in names)
    return tuple(f'"{bigrams(phrase)}"' for phrase in phrases if phrase)[:MAX_NAMES]


def _phrase(compound: str) -> tuple[str, ...]:
    words = _WORD.findall(compound.replace("_", " "))
    return tuple(word[:MAX_WORD_CHARACTERS] for word in words[:MAX_PHRASE_WORDS])


# The branch that is checked out, for questions that point at it without its name: "fix the failing test".

#: How a question speaks of the branch that is checked out, without its name; a number names another one.
_THIS_BRANCH = re.compile(
    r"\b(?:(?:this|the|my|our|current|local) (?!main\b|master\b|default\b)(?:\w+ )?branch"
    r"|(?:this|that|the|my|our) (?:\w+ )?(?:prs?|pull request|merge request|mr)|prs? (?:comments?|feedback|review))\b"
    r"(?! ?#?\d)|\bwhere (?:were|are) we\b|\b(?:we|i) (?:left|leave) off\b"
    r"|\b(?:my|our) (?:\w+ )?(?:tests?|changes|commits?|build|checks?)\b|\bmerge conflicts?\b"
    r"|\b(?:i|we) (?:opened|created|pushed) (?:a|an|the) (?:\w+ )?(?:pr|pull request|merge request|mr)\b"
    r"|\b(?:failing|broken|red) (?:\w+ )?(?:tests?|checks?|build|lint|ci|pipeline)\b"
    r"|\b(?:tests?|checks?|build|lint(?:er|ing)?|ci|pipeline) (?:is|are|still|keeps?) (?:still )?"
    r"(?:failing|fails?|broken|red)\b",
    re.IGNORECASE,
)
#: Branches that say nothing of what is done on them.
TRUNKS = ("develop", "main", "master", "trunk")
_NAME_LETTERS = re.compile(r"[^\W\d_]{2,}")


def is_of_this_branch(text: str) -> bool:
    """Return True if `text` asks for the work on the current branch."""
    return _THIS_BRANCH.search(text) is not None


def branch_words(branch: str) -> str:
    """The words of a branch's name, behind its last slash; none of a trunk's."""
    return "" if branch in TRUNKS else " ".join(_NAME_LETTERS.findall(branch.rpartition("/")[2]))


# What is asked of the index and what was found in it: values.

#: A text of fewer words is no sentence.
SENTENCE_WORDS = 3


@dataclass(frozen=True, slots=True)
class Code:
    """Code that is asked about: `lines` as PATH:FIRST-LAST, `files`, a `commit`, uncommitted `changes` or a patch, or a
    `pull` request by its number.
    """

    lines: Sequence[str] = ()
    files: Sequence[str] = ()
    commit: str | None = None
    changes: bool | str | None = None
    pull: int | None = None

    def __bool__(self) -> bool:
        return bool(self.lines or self.files or self.commit or self.changes or self.pull)


@dataclass(frozen=True)
class Query:
    """A valid question, `also` saying it in other words; all its phrasings are answered together.

    `everywhere` means all projects, `caller` is the session that asks, `relatives` are those of other families that
    know what it knows, `hidden` is never found, `doubt` counts against all: what is not known yet may speak for others.
    `read` is the share of sessions that were read: the one that is meant may be among the rest. `relevant` is the
    intent without what only says how to work, where that is known.
    `branch` is what is checked out where it is asked, `landed` the subjects of its commits, `in_play` the files that
    are worked on there, `given` by the caller or found changed. `agents` are those whose sessions are searched, and
    `directory` is where it is asked.
    """

    intent: str
    scope: Scope
    limit: int
    everywhere: bool = False
    min_score: float | None = None
    caller: SessionRow | None = None
    hidden: frozenset[str] = frozenset()
    also: tuple[str, ...] = ()
    relatives: tuple[SessionRow, ...] = ()
    doubt: float = 0.0
    read: float = 1.0
    relevant: str = ""
    branch: str = ""
    landed: str = ""
    in_play: tuple[str, ...] = ()
    given: bool = False
    agents: tuple[AgentName, ...] = ()
    directory: Path = Path()

    @property
    def known_families(self) -> frozenset[str]:
        """The families of the caller, and of those that know what it knows."""
        return frozenset(one.root_id for one in (self.caller, *self.relatives) if one and one.root_id)

    def is_kin(self, session: SessionRow) -> bool:
        """Whether it says what the caller knows already: they have one origin, or one was told of the other."""
        known = (one for one in (self.caller, *self.relatives) if one)
        return bool(session.root_id) and any(session.root_id == one.root_id for one in known)

    @cached_property
    def phrasings(self) -> tuple[str, ...]:
        """The question in each of its wordings, the person's own first, with the words of what it points at."""
        pointed = (branch_words(self.branch), self.landed) if is_of_this_branch(self.intent) else ()
        return (" ".join(filter(None, (self.relevant or self.intent, *pointed))), *self.also)

    @cached_property
    def embedded(self) -> tuple[int, ...]:
        """Which of the phrasings are compared by meaning, too: the person's own and the shortest sentence.

        One embedding is most of a question's time, and what the others add to find a session is in their words. Two are
        needed where the person asks in a language that the model does not know. All are where one session is asked:
        there they tell its exchanges apart.
        """
        others = range(1, len(self.phrasings))
        if self.scope.session is not None:
            return (0, *others)
        return (0, *sorted(others, key=self._meaning_and_size)[:1])

    @property
    def meanings(self) -> tuple[str, ...]:
        """The texts of those phrasings."""
        return tuple(self.phrasings[number] for number in self.embedded)

    def _meaning_and_size(self, number: int) -> tuple[bool, int]:
        """One or two words are names, and mean little."""
        text = self.phrasings[number]
        return len(text.split()) < SENTENCE_WORDS, len(text)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A session, its score, and the chunk that answers best with the words of the intent that it has.

    `why` is how the score came about, before any reranker, from each of the question's `phrasings`, and `None` where
    another engine has given it; `lines` are the chunk's first and last in the export; `asked` are all words of the
    phrasings; `voices` says where in the text others begin to speak than its first role, `None` where nobody knows;
    `wrote` is its part of the code that was asked about.
    """

    session: SessionRow
    score: float
    place: Placement | None
    text: str
    words: tuple[str, ...]
    near: float | None
    family: tuple[SessionRow, ...]
    why: Score | None
    lines: tuple[int, int] | None = None
    asked: tuple[str, ...] = ()
    voices: Sequence[tuple[int, PieceRole | None]] | None = None
    phrasings: tuple[str, ...] = ()
    wrote: WroteLines | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """Candidates, best first; how they were found; and what failed on the way. `dropped` had no id or directory.

    `rerank_error` says why a reranker that is configured had no say. `engine` has found them, `said` is what an answer
    repeats of one that is not our own; `rivals` are the families that share the chance, with their leads. `weighed`
    are the terms that were looked for, by phrasing, with their weights.
    """

    hits: tuple[Candidate, ...]
    mode: Mode
    error: str = ""
    dropped: int = 0
    rerank_error: str = ""
    engine: str = "builtin"
    said: Mapping[str, Any] = field(default_factory=dict)
    rivals: Mapping[str, float] = field(default_factory=dict)
    weighed: Sequence[Mapping[str, float]] = ()

    @property
    def fallback_used(self) -> bool:
        """Whether the first way of searching failed."""
        return bool(self.error)


# The words of a question in all its phrasings: each is looked for once, and speaks for every phrasing that has it.


#: A phrasing of more terms is a sentence, and none of them the beginning of a name; nor is one of fewer letters.
MOST_NAMES, SHORTEST_BEGINNING = 2, 3


@dataclass(frozen=True, slots=True)
class Matches:
    """The best rows of a table by all words, and the BM25 that each phrasing gives them."""

    rows: frozenset[int]
    scores: tuple[Mapping[int, float], ...]


class QueryWords:
    """The known terms of each phrasing, rarer ones weighing more, and what they find in the scope of a question.

    `weighed` are those terms, if they are known from a question that had the same phrasings and another scope.
    """

    def __init__(self, store: Searchable, query: Query, weighed: Sequence[Mapping[str, float]] = ()) -> None:
        self._store, self._scope = store, query.scope
        self.phrasings = weighed or _weighed(store, query.phrasings)
        self._terms = list(dict.fromkeys(term for terms in self.phrasings for term in terms))
        self._names = [*(names_of(text) for text in query.phrasings), quoted_names(query.in_play)]
        self._having: dict[HavingTable, dict[str, Collection[int]]] = {}

    def matches(self, table: WordTable, limit: int) -> Matches:
        """The best rows of a table."""
        best = self._store.match_words(table, self._terms, self._scope, limit)
        return Matches(frozenset(hit.row for hit in best), self._shared(table, best))

    def _shared(self, table: WordTable, best: Sequence[Scored]) -> tuple[Mapping[int, float], ...]:
        """BM25 adds up term by term, so the score of each phrasing is the sum of those of its own terms."""
        if len(self.phrasings) == 1:
            return (dict(best),)
        rows = [hit.row for hit in best]
        scores = tuple(defaultdict[int, float](float) for _ in self.phrasings)
        by_term = self._store.word_scores(table, self._terms, self._scope, rows) if rows else {}
        self._having[table] = dict(by_term)
        for term, found in by_term.items():
            for terms, score in zip(self.phrasings, scores, strict=True):
                if term in terms:
                    for row, points in found.items():
                        score[row] += points
        return scores

    def coverage(self, table: HavingTable, scores: Sequence[Mapping[int, float]], most: int) -> list[dict[int, float]]:
        """By phrasing, how much of its words (0…1, rare ones weighing more) each of its `most` best rows has."""
        best = [heapq.nlargest(most, score, key=score.__getitem__) for score in scores]
        asked = {row for rows in best for row in rows}
        having = self._having.get(table) or self._store.having(table, self._terms, asked)
        return [_shares(terms, rows, having) for terms, rows in zip(self.phrasings, best, strict=True)]

    def worked_on(self, sessions: Collection[int]) -> tuple[list[dict[int, float]], float]:
        """By phrasing, how much of its files and names of code (0…1, rare ones weigh more) each session worked on, of
        those that any did; last, how much of the files in play. And how strange (0…1) the question's names are to all.
        """
        names = list(dict.fromkeys(chain.from_iterable(self._names)))
        having = self._store.having("work", names, sessions) if names else {}
        weights = {name: _weight(len(rows), len(sessions)) for name, rows in having.items() if rows}
        shares = [
            _shares({name: weights[name] for name in of_phrasing if name in weights}, list(sessions), having)
            for of_phrasing in self._names
        ]
        asked = self._names[0]
        known = sum(name in weights for name in asked) / len(asked) if len(asked) >= SEVERAL_NAMES else 1.0
        return shares, max(0.0, 1 - known / KNOWN_NAMES)


def _shares(terms: Mapping[str, float], rows: Sequence[int], having: Mapping[str, Collection[int]]) -> dict[int, float]:
    shares = dict.fromkeys(rows, 0.0)
    total = sum(terms.values())
    for term, weight in terms.items() if rows and total else ():
        for row in shares.keys() & having[term]:
            shares[row] += weight / total
    return shares


def _weighed(store: Searchable, phrasings: Sequence[str]) -> list[dict[str, float]]:
    everything = store.session_count()
    asked = [terms_of(text) for text in phrasings]
    counts = store.sessions_with(list(dict.fromkeys(term for terms in asked for term in terms)))
    return [
        {term: _weight(count, everything) for term, count in _known(terms, counts, store.sessions_with).items()}
        for terms in asked
    ]


def _weight(count: int, everything: int) -> float:
    return math.log((everything - count + 0.5) / (count + 0.5) + 1)


def _known(
    terms: Sequence[str], counts: Mapping[str, int], count: Callable[[Sequence[str]], Mapping[str, int]]
) -> Mapping[str, int]:
    """How many sessions have each term. Of a name typed in part, which none has, those that begin with it."""
    known = {term: counts[term] for term in terms}
    if len(known) > MOST_NAMES or any(known.values()):
        return known
    # Without its last letter, which a stem may not have; a term stands between quotes. A number is typed whole.
    return count([f'{term[:-2]}"*' for term in known if len(term) > SHORTEST_BEGINNING + 2 and " " not in term])
