"""The plan of a cut, and the checks of a transcript: tool calls have results, and parent links lead to turns.

The checks run before a cut, after it (``excise verify``), and before a shared session is sent.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Self

import orjson

from indexer.json_values import dict_in, json_in
from indexer.lazy_compilation import dataclass
from indexer.masking import knowing, mask
from indexer.masking.secrets import hidden_in_parts, lines_at, masked_spans, spans_of, together
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import Turn
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import revealed_secrets
from smart_fork.agents.excision.transcript import MAX_DEPTH, CutWarning, Transcript, TranscriptTurn, is_fixed_field
from smart_fork.errors import SmartForkError, advice
from smart_fork.excise.answer import Excised
from smart_fork.forking.family import reached
from smart_fork.json_edit import respelled


def excise(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> list[TranscriptTurn]:
    """Return `turns` without the turns that have an id in `to_cut`. Unknown ids are ignored."""
    gone = set(to_cut)
    return [turn for turn in turns if turn.id not in gone]


def closure(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> set[str]:
    """Return `to_cut` with the ids of all turns to cut with them, such as the results of tool calls that are cut."""
    dependents = same_records(turns)
    for turn, _, owner in _pairs(turns):
        dependents[owner.id].append(turn.id)
    return reached({turn.id for turn in turns}.intersection(to_cut), dependents)


def same_records(turns: Sequence[TranscriptTurn]) -> defaultdict[str, list[str]]:
    """Return a map from a turn's id to the ids of all lines with its record, if a merged session has several."""
    lines: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for turn in turns:
        if turn.key and not turn.inherited:
            lines[turn.key, turn.timestamp].append(turn.id)  # with another time, an equal key is another record's
    return defaultdict(list, {one: list(ids) for ids in lines.values() if len(ids) > 1 for one in ids})


def repeated_lines(turns: Sequence[TranscriptTurn], gone: Collection[str]) -> set[str]:
    """Return the ids of remaining titles and summaries that repeat text which only the cut turns (`gone`) have."""
    cut, staying = set[str](), set[str]()
    for turn in turns:
        (cut if turn.id in gone else staying).update(turn.says)
    cut -= staying
    if gone:
        cut.add(TranscriptTurn.ANY)
    return {turn.id for turn in turns if turn.id not in gone and not cut.isdisjoint(turn.repeats)}


def verify(turns: Sequence[TranscriptTurn], to_cut: Collection[str]) -> list[CutWarning]:
    """Return a warning for each tool result that would be cut (its turn is in `to_cut`) while its tool call stays."""
    gone = set(to_cut)
    return sorted({
        CutWarning(turn.id, f"holds the result of {call}, but its call stays in turn {owner.id}")
        for turn, call, owner in _pairs(turns)
        if turn.id in gone and owner.id not in gone
    })  # fmt: skip


def results_without_call(turns: Sequence[TranscriptTurn | Turn]) -> list[CutWarning]:
    """Return a warning for each tool result that has no tool call before it."""
    asked = {""}
    found: set[CutWarning] = set()
    for turn in turns:
        asked.update(call.id for call in turn.tool_calls)
        unasked = {one.tool_use_id for one in turn.tool_results} - asked
        found |= {CutWarning(turn.id, f"holds the result of {one}, which no earlier turn calls") for one in unasked}
    return sorted(found)


def calls_without_result(turns: Sequence[TranscriptTurn]) -> set[str]:
    """Return the ids of the tool calls that have no result in these turns."""
    answered = {result.tool_use_id for turn in turns for result in turn.tool_results}
    return {call.id for turn in turns for call in turn.tool_calls if call.id} - answered


def _pairs(turns: Sequence[TranscriptTurn]) -> Iterator[tuple[TranscriptTurn, str, TranscriptTurn]]:
    """Yield for each tool result: its turn, the id of its tool call, and the turn with that call.

    If several calls have the same id, the last one before the result counts, or else the first one after it.
    """
    first: dict[str, TranscriptTurn] = {}
    for turn in reversed(turns):
        first.update((call.id, turn) for call in turn.tool_calls)
    latest: dict[str, TranscriptTurn] = {}
    for turn in turns:
        latest.update((call.id, turn) for call in turn.tool_calls)
        for result in turn.tool_results:
            owner = latest.get(result.tool_use_id) or first.get(result.tool_use_id)
            if result.tool_use_id and owner is not None:
                yield turn, result.tool_use_id, owner


def calls_with_cut_result(session: Transcript, cut: Collection[str]) -> list[CutWarning]:
    """Return a warning for each tool call without a result, if its id is in `cut`: a cut has removed the result.

    Other calls without a result get no warning: agents leave such calls themselves.
    """
    left = {*cut} & calls_without_result(session.turns)
    return sorted(
        CutWarning(turn.id, f"calls {call.id}, but their result was cut")
        for turn in session.turns
        for call in turn.tool_calls
        if call.id in left
    )


def broken_links(session: Transcript) -> list[CutWarning]:
    """Return a warning for each turn that names a parent turn outside the session's file."""
    known = {name for turn in session.turns for name in (turn.id, *turn.aliases)}
    return [
        CutWarning(turn.id, f"its parent {turn.parent_id} is not in the file")
        for turn in session.turns
        if turn.parent_id and turn.parent_id not in known and not turn.id.startswith("line-")
    ]


class Refused(SmartForkError):
    """A cut has a problem or a warning and was not made. ``--force`` makes it nevertheless."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class CutPlan:
    """A planned cut of a session. Nothing is written yet.

    `seeds` are the ids of the turns that the user named, and `gone` the ids of all turns to cut. `repeated` are
    bookkeeping lines that only repeat cut turns. `relinked` turns get another parent. `edits` has the new bytes of
    lines by position. `apart` are the keys of lines to rewrite in other files of the session.
    """

    session: Transcript
    seeds: frozenset[str]
    gone: frozenset[str]
    repeated: frozenset[str] = frozenset()
    warnings: tuple[CutWarning, ...] = ()
    problems: tuple[str, ...] = ()
    edits: Mapping[int, bytes] = field(default_factory=dict)
    relinked: tuple[str, ...] = ()
    masked: Mapping[str, int] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()

    @classmethod
    def of(cls, session: Transcript, to_cut: Collection[str], *, relink: bool = True) -> Self:
        """Plan to cut the turns with the ids in `to_cut`.

        With `relink`, a turn below a cut parent gets the nearest remaining turn above as its parent.
        """
        turns = session.turns
        seeds = frozenset(to_cut) & {turn.id for turn in turns}
        paired = closure(turns, seeds)
        repeated = repeated_lines(turns, paired)
        gone = frozenset(paired | repeated)
        agent = AGENTS.cutter_of(session.tool)
        linked = agent.relinked(turns, gone) if relink else {}
        return cls(
            session,
            seeds,
            gone,
            frozenset(repeated),
            tuple(verify(turns, gone)),
            tuple(_problems(session, gone)),
            {**agent.without_repetitions(session, gone), **linked},
            tuple(turns[position].id for position in linked),
        )

    @classmethod
    def masking(
        cls, session: Transcript, ids: Collection[str], among: Collection[str] | None, *, relink: bool = True
    ) -> Self:
        """Plan to replace secrets by masks such as "[REDACTED:aws-key]", and to cut the turns in `ids`.

        Secrets are masked in the turns of `among`, or in all turns of the session's own file if it is `None`.
        """
        if among is not None:
            same = same_records(session.turns)
            among = {one for named in among for one in (named, *same[named])}
        found, kinds, signed = _mask(session, among, {})
        planned = cls.of(session, {*ids, *signed}, relink=relink)
        if planned.edits:  # what is linked again is masked as well
            found, kinds, _ = _mask(session, among, planned.edits)
        edits = {position: raw for position, raw in found.items() if session.turns[position].id not in planned.gone}
        return replace(planned, edits={**planned.edits, **edits}, masked=kinds)

    @property
    def dependents(self) -> frozenset[str]:
        """The ids of turns that are cut because they depend on the turns that the user named."""
        return self.gone - self.seeds - self.repeated

    @property
    def orphaned(self) -> frozenset[str]:
        """The ids of tool calls that stay although their results are cut."""
        results = {result.tool_use_id for turn in self.removed for result in turn.tool_results}
        return frozenset(calls_without_result(self.survivors) & results)

    @property
    def survivors(self) -> tuple[TranscriptTurn, ...]:
        """The turns of the session that are not cut, in order."""
        return tuple(excise(self.session.turns, self.gone))

    @property
    def removed(self) -> tuple[TranscriptTurn, ...]:
        """The turns that are cut, in order."""
        return tuple(turn for turn in self.session.turns if turn.id in self.gone)

    @property
    def changes(self) -> bool:
        """True if the plan changes any line of the session's files."""
        return bool(self.gone or self.edits or self.apart)

    @property
    def tokens_after(self) -> int:
        """The estimated number of tokens that the session has after the cut."""
        return sum(turn.token_est for turn in self.survivors)

    @property
    def positions(self) -> frozenset[int]:
        """The positions of the cut turns among the session's turns."""
        return frozenset(at for at, turn in enumerate(self.session.turns) if turn.id in self.gone)

    @property
    def beside(self) -> list[Path]:
        """The files next to the transcript, such as long tool outputs, that are deleted together with the cut turns."""
        return AGENTS.cutter_of(self.session.tool).beside(self.session.source_path, self.removed)

    def refuse(self) -> None:
        """Raise `Refused` if the plan has problems or warnings. ``--force`` skips this check."""
        if self.problems:
            raise Refused(
                "; ".join(self.problems),
                advice("--force cuts them all.", tool="force does it, if the user wants that."),
            )
        if self.warnings:
            found = "\n".join(f"  {warning.turn_id}: {warning.reason}" for warning in self.warnings)
            insist = advice("re-run with --force to override", tool="force overrides them, if the user wants that")
            raise Refused(
                f"dependency warnings ({insist})\n{found}\naborted by dependency-aware check",
                "Add the turns of the matching calls or results.",
            )

    def report(self, *, dry_run: bool) -> Excised:
        """Return the plan as the answer that the commands print."""
        session = self.session
        gone = [turn.id for turn in self.removed]
        turns = zip(session.numbers, session.turns, strict=True)
        return Excised(
            session_id=session.session_id,
            tool=session.tool,
            path=str(session.source_path),
            dry_run=dry_run,
            removed=tuple(gone),
            seeds=tuple(one for one in gone if one in self.seeds),
            dependents=tuple(one for one in gone if one in self.dependents),
            repeated=tuple(one for one in gone if one in self.repeated),
            numbers=tuple(number for number, turn in turns if turn.id in self.gone),
            warnings=(*self.warnings, *(CutWarning("", reason) for reason in self.problems)),
            relinked=self.relinked,
            masked=dict(self.masked),
            tokens_before=session.tokens,
            tokens_after=self.tokens_after,
        )


def _problems(session: Transcript, gone: Collection[str]) -> list[str]:
    if not gone:
        return []
    found = [
        f"without turn {turn.id}, its header, {turn.meta['needed']} can no longer load the session"
        for turn in session.own
        if turn.id in gone and "needed" in turn.meta
    ]
    numbered = [turn for turn, number in zip(session.turns, session.numbers, strict=False) if number is not None]
    own = [turn for turn in numbered or session.turns if not turn.is_parents]  # rewound turns have no number
    left = [turn for turn in own if turn.id not in gone]
    inherits = any(turn.is_parents for turn in session.turns)
    if not any(turn.role in ("user", "assistant") for turn in left):
        found.append("that would cut everything")
    elif not inherits and not any(turn.prompt for turn in left) and any(turn.prompt for turn in own):
        found.append("no prompt of a person would remain")
    return found


_MASK = re.compile(r"\[REDACTED:([a-z0-9-]{1,40})\]")
_THINKING = ("thinking", "redacted_thinking")


def _mask(
    session: Transcript, among: Collection[str] | None, before: Mapping[int, bytes]
) -> tuple[dict[int, bytes], Counter[str], set[str]]:
    """Mask the secrets in a session's lines: in the turns of `among`, or in all turns if it is `None`.

    `before` has, by position, lines that the plan rewrites anyway. Return the masked lines by position, the number of
    secrets of each kind, and the ids of turns to cut, because they have nothing but signed thinking.
    """
    edits: dict[int, bytes] = {}
    kinds: Counter[str] = Counter()
    to_cut: set[str] = set()
    work = AGENTS[session.tool].codec if session.tool in AGENTS else None
    keys = frozenset(revealed_secrets((turn.raw for turn in session.turns), work))
    for position, turn in enumerate(session.turns):
        if not turn.is_line or (among is not None and turn.id not in among):
            continue
        raw = before.get(position, turn.raw)
        with knowing(keys):
            new, found, unsigned = _masked(raw, keys, padded=session.padded)
        kinds.update(found)
        if unsigned:
            to_cut.add(turn.id)
        elif new != raw:
            edits[position] = new
    return edits, kinds, to_cut


def secrets_in(raw: bytes) -> list[str]:
    """Return the kinds of the secrets in a line of a log."""
    found: list[str] = []
    for _, record in decode_line(raw)[0]:
        map_texts(record, *_collecting(found, ()))
    return found


def _masked(raw: bytes, keys: Collection[str], *, padded: bool) -> tuple[bytes, list[str], bool]:
    found: list[str] = []
    pieces = []
    objects, broken = decode_line(raw)
    if broken or not objects:
        text = raw.decode("utf-8", "surrogateescape")
        return _collecting(found, keys)[0](text).encode("utf-8", "surrogateescape"), found, False
    for source, record in objects:
        before = len(found)
        new = map_texts(record, *_collecting(found, keys))
        if len(found) == before:
            pieces.append(source.rstrip(b"\r\n"))
            continue
        if not _without_signed(record, new):
            return raw, found, True
        pieces.append(respelled(source, new))
    line = b" ".join(pieces) if found else raw
    if padded and len(line) > len(raw):
        line = _MASK.sub("***", line.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return line, found, False


def _without_signed(record: dict[str, Any], new: dict[str, Any]) -> bool:
    """Remove from `new`, the masked copy of `record`, the thinking blocks that masking changed: agents sign them.

    Return False if `new` has no content left.
    """
    message = new.get("message")
    content, before = dict_in(message).get("content"), dict_in(record.get("message")).get("content")
    if not isinstance(content, list) or not isinstance(before, list):
        return True
    kept = [
        block
        for block, was in zip(content, before, strict=True)
        if block == was or dict_in(was).get("type") not in _THINKING
    ]
    if isinstance(message, dict):
        message["content"] = kept
    return bool(kept)


def _collecting(
    found: list[str], keys: Collection[str]
) -> tuple[Callable[[str], str], Callable[[list[str]], list[str]]]:
    """Return two masking functions: one for a text, and one for a list of lines that form one text.

    Both append the kinds of the masked secrets to `found`. `keys` are lines of private keys, masked wherever they
    occur.
    """

    def change(text: str) -> str:
        new = mask(masked_spans(text, lines_at(text, keys)))
        if new != text:
            already = len(_MASK.findall(text))
            found.extend(_MASK.findall(new)[already:] or ["secret"])
        return new

    def lines(parts: list[str]) -> list[str]:
        text = "\n".join(parts)
        if change(text) == text:
            return parts
        return [mask(part) for part in hidden_in_parts(parts, spans_of(text))]

    return change, lines


_Change = Callable[[str], str]
_ChangeAll = Callable[[list[str]], list[str]]


def map_texts(value: Any, change: _Change, lines: _ChangeAll = list, depth: int = 0) -> Any:
    """Return a copy of a JSON value with `change` applied to every text. A text that is JSON stays valid JSON.

    If the items of a list form one text, `lines` changes them together.
    """
    if isinstance(value, str):
        return _mapped_text(value, change, lines, depth)
    if depth < MAX_DEPTH and isinstance(value, dict):
        return {
            key: part if is_fixed_field(key, part) else map_texts(part, change, lines, depth + 1)
            for key, part in value.items()
        }
    if depth < MAX_DEPTH and isinstance(value, list):
        return [map_texts(part, change, lines, depth + 1) for part in together(value, lines, is_fixed_field)]
    return value


def _mapped_text(value: str, change: _Change, lines: _ChangeAll, depth: int) -> str:
    new = change(value)
    inner = json_in(value) if new != value and value.startswith(("{", "[")) else None
    return new if inner is None else orjson.dumps(map_texts(inner, change, lines, depth + 1)).decode()
