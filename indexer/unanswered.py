"""Prompts at a session's end that came to nothing: who was only asked something does not know it.

The agent was stopped, could not ask its model, or has said nothing in reply, and has changed nothing before. What was
gone on from is part of what came of it then; what was only typed again had no answer before.
"""

from __future__ import annotations

import re

from indexer.patterns import late
from indexer.transcripts.model import Exchange, Session, ToolResult, Turn
from indexer.transcripts.ours import only_looks
from indexer.transcripts.retold import breaks_off, calls_of, results_of
from indexer.transcripts.titles import is_failure, says_something

#: How the line of an action begins that only looks at something.
_LOOKS = ("read ", "search ", "Glob ", "LS ", "WebFetch ", "WebSearch ", "Skill ")
#: How the note on a command begins that has ended.
_ENDED = "exit "
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
#: An answer that is longer says something besides its question, or that it is not known.
_SHORT = 120
#: How it is said, in languages that people speak with agents.
_NOT_KNOWN = late(
    r"\b(?:do(?:n['\u2019]t| not) know|can(?:['\u2019]t|not) (?:tell|say)|no idea|(?:not |un)sure|"
    r"could(?:n['\u2019]t| not) find|wei(?:\u00df|ss) (?:ich )?(?:es )?(?:leider )?nicht|keine ahnung|nicht sicher|"
    r"sais pas|aucune idée|pas sûre?|no (?:lo )?sé|ni idea|no estoy segur[oa]|não (?:o )?sei|não tenho certeza|"
    r"non (?:lo )?so|non saprei|nessuna idea|weet (?:ik )?(?:het )?niet|geen idee|nie wiem|bilmiyorum|"
    "не знаю|не уверена?)\\b|不知道|不清楚|不确定|不確定|[分わ]かりません|[分わ]からない|知りません|"
    "모르겠|모릅니다|لا أعرف|لا أعلم",
    re.IGNORECASE,
)
#: A number, a path, a name of code: whoever names one knows something.
_FACT = late(r"[\d`/\\=<>{}()\[\]#$%@]|\w[._]\w|[a-z][A-Z]|https?:")


def last_answered(session: Session) -> int | None:
    """The index of the last exchange that came to something, -1 for none; `None` where that is the last of all."""
    done = {result.tool_use_id for turn in session.turns for result in results_of(turn) if _was_run(result)}
    exchanges = session.exchanges()
    stopped, again = session.interrupted, None
    for one in reversed(exchanges):
        asked = _asked(one)
        changed = any(call in done for turn in one.turns for call in _changing(turn))
        if changed or not (stopped or asked == again or not _is_answered(one)):
            return one.index if one is not exchanges[-1] else None
        stopped, again = False, asked
    return -1 if exchanges else None


def changes(turn: Turn) -> bool:
    """Whether something is done in it that is more than to look at something."""
    return bool(_changing(turn))


def _changing(turn: Turn) -> list[str]:
    """The calls that do so."""
    return [call.id for call in calls_of(turn) if call.action and not _only_looks(call.action)]


def _was_run(result: ToolResult) -> bool:
    """Whether the call was carried out: also a command that ended with another status than 0."""
    return not result.is_error or result.note.startswith(_ENDED)


def _asked(exchange: Exchange) -> list[str]:
    return [" ".join(turn.text.split()) for turn in exchange.turns if turn.prompt]


def _is_answered(exchange: Exchange) -> bool:
    """Whether more than a greeting is asked, and the agent has the last word."""
    spoken = next((turn for turn in reversed(exchange.turns) if turn.speaks), None)
    if spoken is None or spoken.role != "assistant" or spoken.tool_calls or breaks_off(spoken):
        return False
    if is_failure(spoken.text) or _only_asks_back(exchange, spoken.text) or _does_not_know(spoken.text):
        return False
    return any(says_something(turn.text) for turn in exchange.turns if turn.prompt)


def _only_asks_back(exchange: Exchange, said: str) -> bool:
    """Whether the agent has looked at nothing, and said no more than one short question."""
    asks = said.rstrip().endswith(_QUESTION_MARKS) and len(said) <= _SHORT and "\n" not in said.strip()
    return asks and not any(calls_of(turn) for turn in exchange.turns)


def _does_not_know(said: str) -> bool:
    """Whether an answer says no more than that the agent does not know."""
    return len(said) <= _SHORT and bool(_NOT_KNOWN.search(said)) and not _FACT.search(said)


def _only_looks(action: str) -> bool:
    if action.startswith(_LOOKS):
        return True
    runs, _, line = action.partition("run ")
    return not runs and only_looks(line)
