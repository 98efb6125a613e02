"""Computes, from the evidence for each session, the chance that a question means it. Pure functions.

Words and meaning fail differently: only words find a name, only meaning finds a paraphrase. Each part of the evidence
gives points. A session's chance is its share of the weight of all rivals and of one more rival: that no session is
meant. So a question without an answer in the index gets low scores, and 0.5 means as likely right as wrong. With
several phrasings, the evidence is the mean over all; by meaning, over the embedded ones. The points were fitted on
labelled queries, half of them without an answer in the index (``benchmarks/tuning.py``).
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from operator import mul
from typing import Literal, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.store.base import Placement

#: The number of passages that count for a session, and the weight of the best passage.
BEST_CHUNKS, BEST_SHARE = 3, 0.6
#: A cosine below this is no evidence: far and very far passages are equal.
FAR = 0.15
#: The number of best families that share the chance to be meant, as when the points were fitted.
RIVALS = 12


#: From the first chance on, a session probably is the one that a question means. Below the second, it hardly is.
LIKELY_SCORE, FIT_THRESHOLD = 0.5, 0.3
#: The minimum chance of a session in a hint, which an agent gets unasked.
HINT_CHANCE = 0.8
#: The minimum score at which a session that a person named answers a question. Unrelated words score below 0.01.
MIN_NAMED_SCORE = 0.05
#: The maximum chance of a session whose prompts came to nothing, and of any session if a prompt names no work.
MAX_ASKED_CHANCE, MAX_UNNAMED_CHANCE = 0.2, 0.45


class Parts(NamedTuple):
    """The evidence for a session, one number for each kind of evidence; or the points for each kind.

    `session_words` is the session's BM25 score divided by the best session's, times the share of the question's words
    in the best session. `passage_words` and `commits` are the same for passages and commit messages. `title` is the
    share of the question's words in the title, `work` the share of the named files and code names that the session
    worked on, and `files` the share of the files being worked on that it edited. `nearest` is the cosine of its best
    passages, `whole` the mean of all.
    """

    session_words: float = 0.0
    passage_words: float = 0.0
    title: float = 0.0
    work: float = 0.0
    nearest: float = 0.0
    whole: float = 0.0
    files: float = 0.0
    commits: float = 0.0


#: The evidence for a session that a phrasing did not find.
SILENT = Parts()


class Weights(NamedTuple):
    """The points (`worth`) for each kind of evidence at the value 1.

    A session with `nothing` points is as likely to be meant as no session at all.
    """

    worth: Parts
    nothing: float


KnownBy = Literal["both", "words", "meaning"]
#: The points for commits: about half of them if half of a question's words are known.
COMMITS = 3.0
#: The points by what is known about a session: words and embeddings, only words, or only embeddings.
KNOWN: Mapping[KnownBy, Weights] = {
    "both": Weights(Parts(3.72, 3.67, 6.7, 3.56, 7.29, 13.57, 4.18, COMMITS), nothing=9.17),
    "words": Weights(Parts(6.68, 7.58, 11.95, 4.4, files=4.73, commits=COMMITS), nothing=6.61),
    "meaning": Weights(Parts(nearest=20.75, whole=10.66), nothing=11.13),
}
#: The same points for a question with several phrasings: evidence in all of them says more.
KNOWN_AGAIN: Mapping[KnownBy, Weights] = {
    "both": Weights(Parts(7.32, 9.2, 5.25, 2.0, 3.18, 7.55, 3.4, COMMITS), nothing=11.76),
    "words": Weights(Parts(7.73, 11.55, 6.78, 2.0, files=3.6, commits=COMMITS), nothing=9.87),
    "meaning": Weights(Parts(nearest=23.05, whole=10.36), nothing=13.47),
}


@dataclass(slots=True)
class Evidence:
    """The evidence that one phrasing of a question found for one session.

    `words`, `passages` and `commits` are BM25 of the session, its passages and its commit messages. `title`, `work` and
    `files` are shares (0…1) as in `Parts`. `similar` has the cosines of passages by position, `chunks` counts the
    embedded ones. `only_asked` is true if the session did no work.
    """

    words: float = 0.0
    passages: list[float] = field(default_factory=list)
    title: float = 0.0
    similar: dict[int, float] = field(default_factory=dict)
    chunks: int = 1
    only_asked: bool = False
    work: float = 0.0
    files: float = 0.0
    commits: float = 0.0


class Coverage(NamedTuple):
    """The shares of a question's words (0…1, rare words weigh more) in the best session, passage and commits."""

    session: float = 0.0
    chunk: float = 0.0
    commit: float = 0.0


@dataclass(slots=True)
class Phrased:
    """The evidence that one phrasing of the question found for each session, and the `coverage` of its words.

    `embedded` is true if it was also compared by meaning. `named` is true if it is a single word or has a code name.
    """

    evidence: Mapping[int, Evidence]
    coverage: Coverage
    embedded: bool = True
    named: bool = False


class Score(NamedTuple):
    """The points for a session by kind of evidence, and the points `against` it, which rival sessions raise.

    `speaking` is the evidence from each phrasing, `worth` the points for a value of 1, `shares` the weight of one
    phrasing in the mean over all phrasings.
    """

    points: Parts
    against: float
    speaking: Sequence[Parts]
    worth: Parts
    shares: Parts

    @property
    def lead(self) -> float:
        """Return the points for the session minus the points against it."""
        return sum(self.points) - self.against

    @property
    def chance(self) -> float:
        """Return the probability (0…1) that the question means the session.

        It is rounded to 12 digits, because capped chances that should be equal differ in their last bits.
        """
        return round(1 / (1 + math.exp(-self.lead)), 12)

    @property
    def each(self) -> tuple[Parts, ...]:
        """Return the session's points from each phrasing of the question."""
        return tuple(_points(self.worth, map(mul, one, self.shares)) for one in self.speaking)

    def doubted(self, doubt: float, read: float = 1.0) -> Score:
        """Return the score with `doubt` more points against the session, and then its chance multiplied by `read`."""
        doubted = self._replace(against=self.against + doubt)
        return doubted if read >= 1 else doubted.at_most(max(read * doubted.chance, 1e-12))

    def at_most(self, chance: float) -> Score:
        """Return the score with its chance capped at `chance`."""
        return self._replace(against=max(self.against, sum(self.points) - math.log(chance / (1 - chance))))


def scores(phrasings: Sequence[Phrased], families: Mapping[int, str], *, words: bool = True) -> dict[int, Score]:
    """Return the score of each session from the evidence of all phrasings. `words` is true if words were searched.

    Sessions of one family (a session and its forks) do not lower each other's chance.
    """
    weighed = weigh(phrasings, words=words)
    return share(weighed, families, rivals(weighed, families))


def weigh(phrasings: Sequence[Phrased], *, words: bool = True) -> dict[int, Score]:
    """Return the points of each session, before rivals lower its chance. `words` is true if words were searched."""
    speaking = [parts(one.evidence, one.coverage, named=one.named) for one in phrasings]
    shares = shares_of_phrasings(len(phrasings), sum(one.embedded for one in phrasings))
    said = {session: [one.get(session, SILENT) for one in speaking] for one in speaking for session in one}
    similar = {session for one in phrasings for session, found in one.evidence.items() if found.similar}
    first = phrasings[0].evidence.get(_best_by_words(said, shares)) if words and similar else None
    if first and first.passages and not first.chunks:  # none of its passages has its vector yet
        similar = set()  # what has no vectors yet is not held against it: all are weighed by their words
    weighed = {
        session: weigh_one(each, shares, similar=session in similar, words=words) for session, each in said.items()
    }
    only_asked = {session for one in phrasings for session, found in one.evidence.items() if found.only_asked}
    return weighed | {session: weighed[session].at_most(MAX_ASKED_CHANCE) for session in only_asked}


def _best_by_words(said: Mapping[int, Sequence[Parts]], shares: Parts) -> int:
    leads = {session: weigh_one(each, shares, similar=False, words=True).lead for session, each in said.items()}
    return max(leads, key=leads.__getitem__)


def rivals(weighed: Mapping[int, Score], families: Mapping[int, str]) -> dict[str, float]:
    """Return the strongest families (a session and its forks), which lower each other's chance, with their points."""
    best: dict[str, float] = {}
    for session, one in weighed.items():
        best[families[session]] = max(one.lead, best.get(families[session], -math.inf))
    return strongest(best)


def strongest(leads: Mapping[str, float]) -> dict[str, float]:
    """Return the few families (a session and its forks) with the most points in `leads`, with their points."""
    return {family: leads[family] for family in heapq.nlargest(RIVALS, leads, key=leads.__getitem__)}


def share(weighed: Mapping[int, Score], families: Mapping[int, str], rivals: Mapping[str, float]) -> dict[int, Score]:
    """Return each session's score, with points against it for all `rivals` (family → points) but its own family."""
    weights = {family: math.exp(lead) for family, lead in rivals.items()}
    all_rivals = sum(weights.values())
    others = {one: max(0.0, all_rivals - weights.get(families[one], 0.0)) for one in weighed}
    return {
        session: one._replace(against=one.against + math.log1p(others[session])) for session, one in weighed.items()
    }


def with_rivals(score: Score, family: str, before: Mapping[str, float], rivals: Mapping[str, float]) -> Score:
    """Return the score of a session of `family` against `rivals` instead of those `before` (families with points)."""
    return score._replace(against=score.against - _of_others(family, before) + _of_others(family, rivals))


def _of_others(family: str, rivals: Mapping[str, float]) -> float:
    return math.log1p(sum(math.exp(lead) for one, lead in rivals.items() if one != family))


def parts(evidence: Mapping[int, Evidence], coverage: Coverage, *, named: bool = False) -> dict[int, Parts]:
    """Return the evidence for each session in numbers that are comparable between questions.

    If the question names code (`named`) that is in no passage, the words of the whole session count for its passages:
    the name is then in a command's output or a list of files.
    """
    most_words = max((one.words for one in evidence.values()), default=0.0) or 1.0
    whole = {session: coverage.session * one.words / most_words for session, one in evidence.items()}
    passages = {session: best_of(one.passages) for session, one in evidence.items()}
    most_commits = max((one.commits for one in evidence.values()), default=0.0) or 1.0
    best = max(passages.values(), default=0.0)
    said = {one: coverage.chunk * found / best for one, found in passages.items()} if best else whole if named else {}
    return {
        session: Parts(
            whole[session],
            said.get(session, 0.0),
            one.title,
            one.work,
            max(0.0, best_of(one.similar.values())),
            _whole(one),
            one.files,
            coverage.commit * one.commits / most_commits,
        )
        for session, one in evidence.items()
    }


def shares_of_phrasings(all_of_them: int, embedded: int) -> Parts:
    """Return a phrasing's weight in each mean: over all phrasings or, for evidence by meaning, the `embedded` ones."""
    return Parts._make([*[1 / all_of_them] * 4, *[1 / (embedded or 1)] * 2, *[1 / all_of_them] * 2])


def weigh_one(speaking: Sequence[Parts], shares: Parts, *, similar: bool, words: bool) -> Score:
    """Return the points of one session from its evidence (`speaking`) in each phrasing of the question.

    `shares` has the weight of one phrasing. `similar` is true if a passage has an embedding, `words` if words were
    searched.
    """
    rows = KNOWN_AGAIN if len(speaking) > 1 else KNOWN
    known = rows["meaning" if not words else "both" if similar else "words"]
    mean = map(mul, map(sum, zip(*speaking, strict=True)), shares)
    return Score(_points(known.worth, mean), known.nothing, speaking, known.worth, shares)


def _points(worth: Parts, values: Iterable[float]) -> Parts:
    return Parts._make(map(mul, worth, values))


def _whole(one: Evidence) -> float:
    if not one.similar:
        return 0.0
    near = [value for value in one.similar.values() if value > FAR]
    count = max(one.chunks, len(one.similar))
    return (sum(near) + FAR * (count - len(near))) / count


def best_of(values: Collection[float]) -> float:
    """Return the highest value, averaged with the next highest ones. A missing next value counts as 0."""
    if not values:
        return 0.0
    top = sorted(values, reverse=True)[:BEST_CHUNKS]
    return BEST_SHARE * top[0] + (1 - BEST_SHARE) * sum(top) / BEST_CHUNKS


# The exchange of one session after which a fork knows all that is asked.
#
# If a question has two parts, or a first answer was wrong, the best passage is too early: the answer is complete where
# the talk about it ends. So each exchange is weighed by its words, its meaning, the talk about the question before it
# (`talk`), and its position. If the next exchange carries out or repairs the work (`pending`), the answer is only
# complete there. The weights were fitted on labelled questions: docs/explanation/searching.md.


class PointParts(NamedTuple):
    """The evidence that a fork should end with an exchange (a prompt with its answer).

    `nearest` is the cosine of its best passages, `words` its matching words. `talk` is the amount of talk about the
    question so far, `late` the position; both relative to the session's maximum. `pending` is 1 if the next exchange
    changes files, which counts against this one.
    """

    nearest: float
    words: float
    talk: float
    late: float
    pending: float


@dataclass(frozen=True, slots=True)
class ExchangeEvidence:
    """The evidence for each exchange (a prompt with its answer) of a session, by its number from 0.

    A fork after exchange `point` knows all that is asked. `why_not` says why words, meaning or both were not compared.
    `score` is the chance that the question means this session.
    """

    parts: Mapping[int, PointParts] = field(default_factory=dict)
    point: int | None = None
    why_not: str = ""
    score: float | None = None

    @property
    def fits(self) -> bool:
        """Return True if the session probably answers the question, or if the chance is unknown."""
        return not self.low_score

    @property
    def low_score(self) -> str:
        """Return the score and the minimum, such as "0.01, below 0.05", if the score is too low; else an empty text."""
        low = self.score is not None and self.score < MIN_NAMED_SCORE
        return f"{score_in_words(self.score or 0.0)}, below {MIN_NAMED_SCORE:.2f}" if low else ""


#: The share of the talk about the question that an exchange inherits from the exchange before.
KEPT_TALK = 0.6
WORTH = PointParts(1.3, 1.8, 3.4, 1.5, -1.3)


def fork_point(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], similar: Sequence[Mapping[int, float]],
    parts: Mapping[int, PointParts],
) -> Placement | None:  # fmt: skip
    """Return the best passage of the exchange (a prompt with its answer) after which a fork knows all that is asked.

    `places` are all passages of the session, in order. `words` has each phrasing's scores by passage, `similar` each
    embedded phrasing's cosines by position. `parts` are the results of `exchange_parts`.
    """
    if not places:
        return None
    points = {
        exchange: sum(worth * value for worth, value in zip(WORTH, speaking, strict=True))
        for exchange, speaking in parts.items()
    }
    chosen = max(points, key=lambda exchange: (points[exchange], exchange))
    own = [place for place in places if place.exchange == chosen]
    return max(own, key=lambda place: _by_words(place, words) + _by_meaning(place, similar))


def exchange_parts(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], similar: Sequence[Mapping[int, float]],
    changing: Collection[int],
) -> dict[int, PointParts]:  # fmt: skip
    """Return for each exchange the evidence, averaged over phrasings, that a fork should end with it.

    Exchanges in `changing` change files. For the other parameters, see `fork_point`.
    """
    of_exchange: defaultdict[int, list[Placement]] = defaultdict(list)
    for place in places:
        of_exchange[place.exchange].append(place)
    count, last = len(words), max(of_exchange) or 1
    nearest = {
        exchange: sum(max(0.0, best_of([one.get(place.position, 0.0) for place in own])) for one in similar)
        / len(similar)
        for exchange, own in of_exchange.items()
    }
    most = [max(scores.values(), default=0.0) or 1.0 for scores in words]
    by_words = {
        exchange: sum(
            max(one.get(place.chunk, 0.0) for place in own) / top for one, top in zip(words, most, strict=True)
        )
        / count
        for exchange, own in of_exchange.items()
    }
    most_near, most_words = max(nearest.values()) or 1.0, max(by_words.values()) or 1.0
    talk: dict[int, float] = {}
    kept = 0.0
    for exchange in sorted(of_exchange):
        kept = KEPT_TALK * kept + nearest[exchange] / most_near + by_words[exchange] / most_words
        talk[exchange] = kept
    most_talk = max(talk.values()) or 1.0
    pending = {exchange for exchange, following in pairwise(sorted(of_exchange)) if following in changing}
    return {
        exchange: PointParts(
            nearest[exchange], by_words[exchange], talk[exchange] / most_talk, exchange / last, exchange in pending
        )
        for exchange in of_exchange
    }


def lost(turn: int, ends: int | None, forgotten: int, gap: int = 0) -> str:
    """Return why the agent's own fork lacks a passage: "compaction" or "gap"; empty if it has the passage.

    The last compaction dropped the first `forgotten` turns, and so each exchange with its end (`ends`) before. The
    agent does not load turns before turn `gap` either.
    """
    if ends is not None and ends < forgotten:
        return "compaction"
    return "gap" if turn < gap else ""


def _by_words(place: Placement, words: Sequence[Mapping[int, float]]) -> float:
    most = [max(one.values(), default=0.0) or 1.0 for one in words]
    return sum(one.get(place.chunk, 0.0) / top for one, top in zip(words, most, strict=True)) / len(words)


def _by_meaning(place: Placement, similar: Sequence[Mapping[int, float]]) -> float:
    return sum(one.get(place.position, 0.0) for one in similar) / len(similar)


# Scores as text for people.


def percent(score: float) -> str:
    """Format a score from 0 to 1 as a percentage, such as "72 %", "< 1 %" or "> 99 %"."""
    if score < 0.01:
        return "< 1 %"
    return "> 99 %" if score > 0.99 else f"{score:.0%}".replace("%", " %")


def score_in_words(score: float) -> str:
    """Format a score from 0 to 1 with two digits, rounded down."""
    return f"{math.floor(score * 100 + 1e-9) / 100:.2f}"
