"""The query of a search: its words as quoted full-text terms, and its scope.

Every word is quoted, so that no text becomes an operator.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from indexer.lazy_compilation import dataclass
from indexer.store.base import HavingTable, Scope, Scored, Searchable, SessionRow, WordTable, bigrams
from indexer.transcripts.model import AgentName
from smart_fork.errors import is_empty
from smart_fork.finding.ranking import RIVALS

#: Only the beginning of a longer question is used.
MAX_CHARACTERS = 4000
MAX_WORDS = 48
#: The points against every session for a question of `MAX_WORDS` words. They shrink to 0 at `SHORT_WORDS` words,
#: without a step.
LONG_DOUBT, SHORT_WORDS = 0.4, 16
#: The points against every session for a short prompt to an agent. A person who searches remembers a session, a prompt
#: may ask for something new. A plan of `PLAN_WORDS` words is specific enough.
PROMPT_DOUBT, PLAN_WORDS = 2.5, 150
#: The points against every session if none of a question's names is of any session, and the number of names from which
#: this counts. From the share `KNOWN_NAMES` of known names on, there are no such points.
STRANGE_DOUBT, SEVERAL_NAMES, KNOWN_NAMES = 2.5, 2, 0.3
#: A question of this many words is searched without its instructions on how to work.
LONG_WORDS = 24
#: Longer words are random data. Of a longer phrase, the beginning is searched.
MAX_WORD_CHARACTERS, MAX_PHRASE_WORDS = 64, 8

_WORD = re.compile(r"\w+")
_COMPOUND = re.compile(r"[\w./:-]+")
#: Paths, file names, and code names: snake_case, camelCase. Each match begins at a word, so that a long text is read
#: once.
_NAME = re.compile(
    r"(?<![\w.~@-])(?:[\w.~@-]*+/)+[\w.@-]+"
    r"|(?<![\w.-])[\w-]++(?:\.[\w-]++)*\.[A-Za-z]\w{0,4}\b"
    r"|\b[A-Za-z]\w*(?:_\w|[a-z0-9][A-Z])\w*"
)
#: A pull request or an issue by its number, as people write it or in an address.
_NUMBERED = re.compile(
    r"https?://\S+?/(?:pull|issues|merge_requests)/(\d+)\S*"
    r"|\b(?:prs?|pull request|mr|merge request|issue) ?[#!]?(\d+)\b",
    re.IGNORECASE,
)
#: The number of names in one question that are searched.
MAX_NAMES = 64
#: Words without a topic. They are left out unless a question has no other words.
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


#: The end of a sentence; words that address an agent; and the number of words that make a sentence without an end.
_SENTENCE = re.compile(r"[.?!](?:\s+[A-Z]|\s*$)")
_ADDRESS = re.compile(r"\b(?:please|can you|could you|let'?s)\b|(?<!\w)@[\w./]", re.IGNORECASE)
SENTENCE_OF_WORDS = 9
#: A command of the agent at the beginning of a prompt.
_COMMAND = re.compile(r"^\s*/[\w:-]+(?!\S)")
#: Words that occur in any prompt, in the singular. They name no work.
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
    """Return `intent` as searchable text: without NUL and lone surrogates, at most `MAX_CHARACTERS`."""
    text = intent[:MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode("utf-8").strip()
    return "" if is_empty(text) else text


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a question to search for: each once, in order, in lower case, without stop words if possible.

    A pull request's address and number are left out: they would find every other pull request.
    """
    named = _WORD.findall(bigrams(_NUMBERED.sub(" ", text)))
    words = list(dict.fromkeys(word.lower()[:MAX_WORD_CHARACTERS] for word in named))
    telling = [word for word in words if word not in _STOP and (len(word) > 1 or not word.isascii())]
    return tuple((telling or words)[:MAX_WORDS])


def doubt_of(text: str, words: int | None = None, strange: float = 0.0) -> float:
    """Return the points to subtract from every session's score, for a long question, a short prompt, or unknown names.

    A long question has something in common with most sessions. A short prompt may ask for something new. `words` counts
    the words of the whole prompt. `strange` (0…1) says how few of the question's names any session worked on.
    """
    long = max(0.0, (len(words_of(text)) - SHORT_WORDS) / (MAX_WORDS - SHORT_WORDS))
    short = max(0.0, 1 - (words or len(text.split())) / PLAN_WORDS) if is_prompt(text) else 0.0
    return LONG_DOUBT * long + PROMPT_DOUBT * short + STRANGE_DOUBT * strange


def is_prompt(text: str) -> bool:
    """Return True if `text` reads like a prompt for an agent: it addresses one, is a sentence, or has lines."""
    sentence = text[:1].isupper() and (_SENTENCE.search(text) or len(text.split()) >= SENTENCE_OF_WORDS)
    return bool(sentence or "\n" in text or _ADDRESS.search(text))


def unnamed(text: str) -> str:
    """Return a request to name the work, if `text` only has words that occur in any prompt ("fix this"); else empty."""
    words = words_of(_COMMAND.sub("", text))
    nothing = all(
        word.isdigit() or (word.isascii() and (len(word) == 1 or word.rstrip("s") in _EVERYWHERE)) for word in words
    )
    return "This names no work: say which. " if nothing else ""


def terms_of(text: str) -> tuple[str, ...]:
    """Return a question's search terms, quoted for FTS5: words, and compounds such as ``src/upload.py`` as phrases."""
    numbered = [
        f"{kind}/{one[1] or one[2]}"
        for one in _NUMBERED.finditer(text)
        for kind in (("issue",) if "issue" in one[0].lower() else ("pull", "pr"))
    ]
    phrases = dict.fromkeys(map(_phrase, (*_COMPOUND.findall(_NUMBERED.sub(" ", text.lower())), *numbered)))
    compounds = [bigrams(" ".join(phrase)) for phrase in phrases if len(phrase) > 1][:MAX_WORDS]
    return tuple(dict.fromkeys(f'"{term}"' for term in (*words_of(text), *compounds)))


def names_of(text: str) -> tuple[str, ...]:
    """Return the file names and code names in `text`, each quoted for FTS5."""
    return quoted_names(_NAME.findall(text))


def quoted_names(given: Iterable[str]) -> tuple[str, ...]:
    """Return file names and code names, quoted as search terms for FTS5. Of a long path, only the end is used."""
    names = (_WORD.findall(name.lower().replace("_", " ")) for name in given)
    phrases = dict.fromkeys(" ".join(word[:MAX_WORD_CHARACTERS] for word in name[-MAX_PHRASE_WORDS:]) for name in names)
    return tuple(f'"{bigrams(phrase)}"' for phrase in phrases if phrase)[:MAX_NAMES]


def _phrase(compound: str) -> tuple[str, ...]:
    words = _WORD.findall(compound.replace("_", " "))
    return tuple(word[:MAX_WORD_CHARACTERS] for word in words[:MAX_PHRASE_WORDS])


# The current branch, for questions that refer to it without its name: "fix the failing test".

#: How a question refers to the current branch without its name. With a number, it refers to another branch.
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
#: Branches with names that do not describe the work on them.
TRUNKS = ("develop", "main", "master", "trunk")
_NAME_LETTERS = re.compile(r"[^\W\d_]{2,}")


def is_of_this_branch(text: str) -> bool:
    """Return True if a question refers to the current branch without naming it, such as "my tests" or "this PR"."""
    return _THIS_BRANCH.search(text) is not None


def branch_words(branch: str) -> str:
    """Return the words in a branch's name, after its last slash; empty for main and similar branches."""
    return "" if branch in TRUNKS else " ".join(_NAME_LETTERS.findall(branch.rpartition("/")[2]))


# Values for questions to the index and for results.

#: A text with fewer words is not a sentence.
SENTENCE_WORDS = 3


@dataclass(frozen=True, slots=True)
class Code:
    """The code that a question is about: `lines` (PATH:FIRST-LAST), `files`, a `commit`, `changes`, a `pull` request.

    `changes` is the text of a patch, or True for the uncommitted changes.
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
    """A checked question to the index. `intent` is its text; `also` are other phrasings of it, which are searched too.

    `everywhere` means all projects. `caller` is the session that asks, `relatives` are other sessions that share
    content with it. `hidden` sessions are never found. `doubt` are points that each session loses while embeddings are
    missing. `read` is the share of logs that were read. `relevant` is the intent without instructions on how to work.
    `landed` has the subjects of the commits of `branch`. `in_play` are the files being worked on; with `given`, the
    caller named them. `directory` is the directory of the question.
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
    def to_server(self) -> Query:
        """Return the query for a server, with a higher limit: its results also lower other sessions' chances."""
        return replace(self, limit=max(self.limit, RIVALS))

    @property
    def known_families(self) -> frozenset[str]:
        """Return the families (a session and its forks) of the session that asks and of its relatives."""
        return frozenset(one.root_id for one in (self.caller, *self.relatives) if one and one.root_id)

    def is_kin(self, session: SessionRow) -> bool:
        """Return True if `session` shares content with the session that asks: by a fork, a hand-over or a merge."""
        return session.root_id in self.known_families

    @cached_property
    def phrasings(self) -> tuple[str, ...]:
        """Return the texts to search with. The first also has the branch's words, if the question means it."""
        pointed = (branch_words(self.branch), self.landed) if is_of_this_branch(self.intent) else ()
        return (" ".join(filter(None, (self.relevant or self.intent, *pointed))), *self.also)

    @cached_property
    def embedded(self) -> tuple[int, ...]:
        """Return the indexes of the phrasings to compare by meaning too: the first, and the shortest other sentence.

        One embedding takes most of a question's time. A second one helps if the model does not know the language of the
        first. For a question about one session, all phrasings are embedded.
        """
        others = range(1, len(self.phrasings))
        if self.scope.session is not None:
            return (0, *others)
        return (0, *sorted(others, key=self._meaning_and_size)[:1])

    @property
    def meanings(self) -> tuple[str, ...]:
        """Return the phrasings that are compared by meaning, that is, by their embeddings."""
        return tuple(self.phrasings[number] for number in self.embedded)

    def _meaning_and_size(self, number: int) -> tuple[bool, int]:
        text = self.phrasings[number]
        return len(text.split()) < SENTENCE_WORDS, len(text)


# The words of a question. Each is searched once, and counts for every phrasing that contains it.


#: Longer phrasings are sentences: their terms are not searched as beginnings of names. Nor are shorter terms.
MAX_NAME_TERMS, MIN_PREFIX_LETTERS = 2, 3


@dataclass(frozen=True, slots=True)
class Matches:
    """The rows of an index table that match a question's words best, and each phrasing's BM25 scores for them."""

    rows: frozenset[int]
    scores: tuple[Mapping[int, float], ...]


class QueryWords:
    """The search terms of a question's phrasings, weighted by rarity. They find rows of the index in the query's scope.

    `weighed` are the terms and weights if another search with equal phrasings has computed them.
    """

    def __init__(self, store: Searchable, query: Query, weighed: Sequence[Mapping[str, float]] = ()) -> None:
        self._store, self._scope = store, query.scope
        self.phrasings = weighed or _weighed(store, query.phrasings)
        self._terms = list(dict.fromkeys(term for terms in self.phrasings for term in terms))
        self._names = [*(names_of(text) for text in query.phrasings), quoted_names(query.in_play)]
        self._having: dict[HavingTable, dict[str, Collection[int]]] = {}

    def matches(self, table: WordTable, limit: int) -> Matches:
        """Return the `limit` rows of an index table that match the words best."""
        best = self._store.match_words(table, self._terms, self._scope, limit)
        return Matches(frozenset(hit.row for hit in best), self._scores_of_phrasings(table, best))

    def _scores_of_phrasings(self, table: WordTable, best: Sequence[Scored]) -> tuple[Mapping[int, float], ...]:
        """Return each phrasing's BM25 scores of the `best` rows: the sums of its own terms' scores."""
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
        """Return, for each phrasing, the share (0…1) of its words in each of its `most` best rows of an index table.

        Rare words weigh more. `scores` are each phrasing's scores by row.
        """
        best = [heapq.nlargest(most, score, key=score.__getitem__) for score in scores]
        asked = {row for rows in best for row in rows}
        having = self._having.get(table) or self._store.having(table, self._terms, asked)
        return [_shares(terms, rows, having) for terms, rows in zip(self.phrasings, best, strict=True)]

    def worked_on(self, sessions: Collection[int]) -> tuple[list[dict[int, float]], float]:
        """Return how much each session worked on the question's names of files and code, and how strange they are.

        The first value maps sessions to shares (0…1) for each phrasing, and at last for the files being worked on. The
        second value (0…1) is high if sessions worked on few of the first phrasing's names. Rare names weigh more.
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
        {
            term: _weight(count, everything)
            for term, count in _counts_or_prefix_counts(terms, counts, store.sessions_with).items()
        }
        for terms in asked
    ]


def _weight(count: int, everything: int) -> float:
    return math.log((everything - count + 0.5) / (count + 0.5) + 1)


def _counts_or_prefix_counts(
    terms: Sequence[str], counts: Mapping[str, int], count: Callable[[Sequence[str]], Mapping[str, int]]
) -> Mapping[str, int]:
    """Return the number of sessions with each term. If there are at most two and none has any, count their prefixes."""
    known = {term: counts[term] for term in terms}
    if len(known) > MAX_NAME_TERMS or any(known.values()):
        return known
    # Without its last letter, which a stem may not have; a term stands between quotes. A number is typed whole.
    return count([f'{term[:-2]}"*' for term in known if len(term) > MIN_PREFIX_LETTERS + 2 and " " not in term])
