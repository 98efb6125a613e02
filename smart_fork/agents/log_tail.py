"""The state of a session's agent (working or idle), read from the records at the end of its log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from indexer.json_values import Value, dict_in, json_in, rare, value
from indexer.lazy_compilation import dataclass
from indexer.masking import Masked
from indexer.transcripts.lines import LineReader, decode_line, last_lines
from indexer.transcripts.reader_state import count, utc
from smart_fork.display_text import quoted, tokens_about

if TYPE_CHECKING:
    from smart_fork.workers.registry import Status

#: A record, such as a large file that was read, may be longer. Then there are fewer signs, but no wrong ones.
TAIL_BYTES = 512 * 1024
#: States of a task that has not ended.
GOING_ON = ("running", "pending", "pending_init", "paused")

_NOTIFICATION = re.compile(r"<task-notification>(.*?)</task-notification>", re.DOTALL)
_TASK = re.compile(r"<task-id>([^<]+)</task-id>")
_STATUS = re.compile(r"<status>(\w+)</status>")


@value
class TokenUse(Value):
    """The token counts of one answer of the model. `input` counts the sent tokens outside the prompt cache.

    The counts of tokens read from the cache and written to it are `None` if the log does not tell them.
    """

    read_from_cache: int | None = rare()
    written_to_cache: int | None = rare()
    input: int = 0
    output: int = 0

    @property
    def loaded(self) -> int:
        """The tokens sent to the model, cached or not."""
        return self.input + (self.read_from_cache or 0) + (self.written_to_cache or 0)

    def __str__(self) -> str:
        """Return the use in words: "read 142k from the cache, wrote 1.1k"."""
        if self.read_from_cache is None:
            return f"{tokens_about(self.input)} input tokens"
        wrote = self.written_to_cache
        rest = f"wrote {tokens_about(wrote)}" if wrote else f"{tokens_about(self.input)} not cached"
        return f"read {tokens_about(self.read_from_cache)} from the cache, {rest}"


@dataclass(frozen=True, slots=True)
class RecordSign:
    """The state of a session's agent that one record of its log shows: "working", "idle", or empty for most records.

    `tokens` is the size of the context. `problem` is the reason why the agent stopped. With `settling`, the agent is
    idle only if no record follows soon.
    """

    status: Status = ""
    tokens: int = 0
    problem: str = ""
    settling: bool = False


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A tool call that has no result so far."""

    tool: str
    given: Mapping[str, Any]

    def text(self, *names: str) -> str:
        return next((value for name in names if isinstance(value := self.given.get(name), str) and value), "")


NO_CALL = OpenCall("", {})
Calls = dict[str, OpenCall]
#: A task's id, and its name at its start; `None` at its end.
Steps = Iterator[tuple[str, str | None]]


class AnswerUse(NamedTuple):
    """The token counts that one record states for an answer. All records of an answer have its `key`.

    `of` is the id of the session that the record names; empty if it names none.
    """

    key: str
    use: TokenUse
    of: str = ""


AnswerTokens = Iterator[AnswerUse]


def answer_tokens(
    key: object, usage: Mapping[str, Any], names: Sequence[str], *, whole: bool = True, of: str = ""
) -> AnswerUse:
    """Return the token counts in a record's `usage`, for the answer `key` of the session `of`.

    `names` are the fields of `usage` for tokens sent, tokens in the answer, tokens read from the cache and tokens
    written to it. With `whole`, the count of tokens sent includes the cached ones.
    """
    sent, output, *cached = map(usage.get, names)
    had, got = (count(one) or (0 if one == 0 and type(one) is int else None) for one in cached)
    others = max(0, count(sent) - whole * ((had or 0) + (got or 0)))
    return AnswerUse(str(key), TokenUse(had, got, others, count(output)), of)


def records(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records of a log with one record on each line."""
    return (line.record for line in LineReader(path))


def backwards(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the records at the end of a log, last record first, without damaged ones."""
    for line in last_lines(path, TAIL_BYTES):
        for _, record in reversed(decode_line(line)[0]) if line else ():
            yield record


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """A background task of an agent. `what` is its name, or its command line."""

    id: str
    what: Masked


@dataclass(frozen=True, slots=True)
class Activity(RecordSign):
    """The state of a session's agent at the end of its log. `at` is the time of the last record."""

    at: str | None = None


@dataclass(frozen=True, slots=True)
class Tail:
    """The functions that read the state of one agent's sessions from their logs.

    * `records` reads all records of a log, `backwards` the records at the log's end, last record first.
    * `sign` returns the state that a record shows; its time is its ``timestamp``.
    * `steps` returns the background tasks that start or end with a record, given the calls without a result so far.
    * `answers` returns the token counts in records.
    * `is_prompt` returns True for a record with the system prompt: a fork of a log that has one keeps the prompt.
    * `window` returns the context window that the newest logs state.
    """

    sign: Callable[[Mapping[str, Any]], RecordSign]
    answers: Callable[[Iterable[Mapping[str, Any]]], AnswerTokens]
    steps: Callable[[Mapping[str, Any], Calls], Steps] = lambda _record, _calls: iter(())
    records: Callable[[Path], Iterator[Mapping[str, Any]]] = records
    backwards: Callable[[Path], Iterator[Mapping[str, Any]]] = backwards
    is_prompt: Callable[[Mapping[str, Any]], bool] = lambda _record: True
    window: Callable[[], int | None] = lambda: None

    def written(self, records: Iterable[Mapping[str, Any]], log: str = "") -> int:
        """Return how many tokens the model wrote in `records`, without records that name a session other than `log`."""
        written: dict[str, int] = {}
        for one in self.answers(records):
            written[one.key] = max(written.get(one.key, 0), one.use.output if one.of in (log or one.of) else 0)
        return sum(written.values())

    def since(self, log: Path, since: str) -> Iterator[Mapping[str, Any]]:
        """Yield a log's records since a time. Since the start of a fork, most of them are its own and not copies."""
        return (one for one in self.records(log) if utc(one.get("timestamp")) >= since)

    def running_tasks(self, records: Iterable[Mapping[str, Any]], since: str = "") -> tuple[BackgroundTask, ...]:
        """Return the background tasks that began at or after `since` and have no logged end, oldest first."""
        calls: Calls = {}
        running: dict[str, str] = {}
        for record in records:
            for identity, what in self.steps(record, calls):
                if what is None:
                    running.pop(identity, None)
                elif utc(record.get("timestamp")) >= since:
                    running[identity] = what
        return tuple(
            BackgroundTask(identity, quoted(" ".join((what or identity).split()))) for identity, what in running.items()
        )

    def keeps_prompt(self, log: Path) -> bool:
        """Return True if the log has the system prompt, so that a fork keeps it, even in another directory."""
        try:
            return any(map(self.is_prompt, self.records(log)))
        except OSError:
            return False

    def output_tokens(self, log: Path, since: str) -> int:
        """Return the tokens that the model wrote in all answers in `log` since a time."""
        return self.written(self.since(log, since), log.stem)

    def first_answer(self, log: Path, since: str) -> TokenUse | None:
        """Return the token use of the first answer since a time; `None` without an answer that has token counts."""
        answers = (one for one in self.answers(self.since(log, since)) if one.of in log.stem and one.use.loaded)
        first = next(answers, None)
        same = takewhile(lambda one: one.key == first.key, answers) if first else ()
        return max((first, *same), key=lambda one: one.use.output).use if first else None

    def activity(self, path: Path, since: str) -> Activity:
        """Return the agent's state at the end of the log at `path`. Records from before `since` do not count."""
        found, this_turn = Activity(), True
        for record in self.backwards(path):
            moment = utc(record.get("timestamp"))
            if moment and moment < since:
                break
            if not moment:  # notes that say nothing of when
                continue
            sign = self.sign(record)
            found = replace(found, at=found.at or moment, tokens=found.tokens or sign.tokens)
            if this_turn and sign.problem:
                found = replace(found, problem=found.problem or sign.problem)
            if sign.status and not found.status:
                found = replace(found, status=sign.status, settling=sign.settling)
            this_turn = this_turn and sign.status != "working"
            if found.status and found.tokens and not this_turn:
                break
        return found if found.status == "idle" else replace(found, problem="")


def notified(text: str) -> Steps:
    """Yield (task id, `None`) for each background task that a ``<task-notification>`` in a message reports as ended.

    A monitor's report has no status, so its task continues.
    """
    for told in _NOTIFICATION.finditer(text):
        task, status = _TASK.search(told[1]), _STATUS.search(told[1])
        if task and status and status[1] not in GOING_ON:
            yield task[1].strip(), None


def object_in(text: object) -> dict[str, Any]:
    """Return `text` if it is a JSON object, or the object in a JSON text; else an empty object."""
    return dict_in(json_in(text) if isinstance(text, str) else text)
