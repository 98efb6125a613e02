"""The work of a cut: how often each line of a session is read, counted and not timed."""

from __future__ import annotations

import random
import tracemalloc
import uuid
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from indexer.masking import shorten
from indexer.transcripts import lines
from smart_fork.agents.claude.log_files import ClaudeAdapter, folder_of
from smart_fork.agents.codex.excision import CodexCutter
from smart_fork.agents.excision import cutter as lines_of_cuts
from smart_fork.agents.excision.transcript import is_fixed_field, searchable_texts
from smart_fork.excise import Request, check, cut, cut_words, rollback
from smart_fork.excise.cutting import cut as cut_out
from smart_fork.excise.lookup import load_for_cut
from smart_fork.excise.verification import cut_text_of
from tests.smart_fork.commands import command_model  # noqa: F401 - a fixture
from tests.smart_fork.excise.test_propagation import indexed
from tests.smart_fork.forks import codex_path, codex_records, said, text, write_log
from tests.smart_fork.world import WordsModel
from tests.support.cases import parametrize_subtests

WORDS = tuple(f"{first}{second}" for first in ("tam", "rok", "vel", "sun") for second in ("bor", "lit", "kan", "mer"))
SHORT, LONG = 20, 60
pytestmark = [pytest.mark.usefixtures("command_model"), pytest.mark.slow]


def claude_log(shop: Path, exchanges: int) -> str:
    """Write a session with this number of exchanges, each with a call and its output, and the agent's own copy of it."""
    chance, session_id, copy_id = random.Random(exchanges), str(uuid.uuid4()), str(uuid.uuid4())  # noqa: S311
    records, parent = [], None
    for n in range(exchanges):
        words = " ".join(chance.choices(WORDS, k=12))
        for kind, content in (
            ("user", f"prompt {n}: {words}"),
            ("assistant", [{"type": "tool_use", "id": f"t{n}", "name": "Bash", "input": {"command": "make"}}]),
            ("user", [{"type": "tool_result", "tool_use_id": f"t{n}", "content": f"{words} " * 9}]),
            ("assistant", text(f"answer {n}: {words}")),
        ):
            records.append(said(f"{session_id}-{n}-{len(records)}", parent, kind, content, cwd=str(shop)))
            parent = records[-1]["uuid"]
    write_log(folder_of(shop) / f"{session_id}.jsonl", [record | {"sessionId": session_id} for record in records])
    copied = [
        record | {"sessionId": copy_id, "forkedFrom": {"sessionId": session_id, "messageUuid": record["uuid"]}}
        for record in records
    ]
    write_log(folder_of(shop) / f"{copy_id}.jsonl", copied)
    return session_id


def codex_log(shop: Path, exchanges: int) -> str:
    session_id = str(uuid.uuid4())
    chance = random.Random(exchanges)  # noqa: S311
    prompts = [f"prompt {n}: {' '.join(chance.choices(WORDS, k=12))}" for n in range(exchanges)]
    write_log(codex_path(Path.home(), session_id), codex_records(session_id, shop, prompts))
    return session_id


@pytest.fixture
def work(monkeypatch) -> Counter[str]:
    """Count decoded lines, fields that are searched for texts, and texts that are masked for a preview."""
    done: Counter[str] = Counter()

    def counted(name: str, function):
        def count(*args, **kwargs):
            done[name] += 1
            return function(*args, **kwargs)

        return count

    decoder = SimpleNamespace(loads=counted("decoded", orjson.loads), JSONDecodeError=orjson.JSONDecodeError)
    monkeypatch.setattr(lines, "orjson", decoder)
    monkeypatch.setattr(searchable_texts, "__defaults__", (counted("fields", is_fixed_field), 0))
    monkeypatch.setattr(lines_of_cuts, "mask", counted("previews", lines_of_cuts.mask))
    return done


def growth(work: Counter[str], ask, made) -> dict[str, float]:
    """Return how much the work grows with each exchange of a session."""
    found = []
    for exchanges in (SHORT, LONG):
        session_id = made(exchanges)
        work.clear()
        ask(session_id)
        found.append(dict(work))
    short, long = found
    return {name: (long[name] - short.get(name, 0)) / (LONG - SHORT) for name in long}


@parametrize_subtests(
    "made, most",
    [
        (claude_log, {"decoded": 75, "fields": 210, "previews": 6}),  # of 4 lines, and 4 of the copy
        (codex_log, {"decoded": 40, "fields": 120, "previews": 4}),
    ],
)
def test_a_cut_reads_each_line_of_a_session_a_few_times_and_masks_only_prompts(shop, work, made, most):
    more = growth(work, lambda one: cut(Request(one, "4", force=True)), lambda count: made(shop, count))

    assert {name: more[name] for name in most if more[name] > most[name]} == {}
    assert more["previews"] > 0


@parametrize_subtests(
    "made, most", [(claude_log, {"decoded": 55, "fields": 210}), (codex_log, {"decoded": 30, "fields": 120})]
)
def test_verify_reads_each_line_a_few_times_whatever_was_cut(shop, work, made, most):
    def ask(session_id: str) -> None:
        cut(Request(session_id, "4", force=True))
        work.clear()
        assert check(session_id)["words_found"] == []

    more = growth(work, ask, lambda count: made(shop, count))

    assert {name: more[name] for name in most if more[name] > most[name]} == {}


def test_a_cut_loads_the_log_of_its_session_once_before_and_once_after(shop, monkeypatch):
    loaded: list[Path] = []
    load = CodexCutter.load
    monkeypatch.setattr(CodexCutter, "load", lambda self, path, composer="": loaded.append(path) or load(self, path))

    cut(Request(codex_log(shop, 3), "2", force=True))

    assert len(loaded) == 2


def test_only_passages_with_other_texts_get_new_vectors_after_a_cut_and_its_rollback(shop, monkeypatch):
    session_id = claude_log(shop, LONG)
    indexed()
    embedded: list[str] = []
    embed = WordsModel.embed
    monkeypatch.setattr(WordsModel, "embed", lambda self, texts: embedded.extend(texts) or embed(self, texts))

    outcome = cut(Request(session_id, "0", force=True))
    after_cut = len(embedded)
    rollback(outcome["snapshot"])

    assert outcome["index"]["note"] == ""
    assert after_cut <= 2
    assert len(embedded) - after_cut <= 2


def test_a_cut_tells_how_many_of_its_steps_are_done(shop):
    told: list[tuple[str, int, int]] = []

    cut_out(Request(claude_log(shop, 3), "2", force=True), progress=lambda *one: told.append(one))

    assert told == [
        *(("reading the session", done, 2) for done in range(3)),
        *(("cutting and erasing", done, 5) for done in range(6)),  # two logs, and what is done behind them
    ]


def test_what_was_cut_is_known_without_the_session_and_its_snapshot_in_memory(shop):
    session_id = str(uuid.uuid4())
    long = [said(f"{session_id}-{n}", f"{session_id}-{n - 1}", "user", f"prompt {n} " * 1_000) for n in range(600)]
    path = folder_of(shop) / f"{session_id}.jsonl"
    write_log(path, [said(f"{session_id}--1", None, "user", "tambor"), *long])
    cut(Request(session_id, "0", force=True, follow=False))
    session = load_for_cut("claude", path)

    tracemalloc.start()
    gone = cut_text_of(session)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert "tambor" in gone.words
    assert most < path.stat().st_size / 2


def test_a_cut_lists_all_logs_of_its_agent_a_few_times(shop, monkeypatch):
    listed: list[None] = []
    discover = ClaudeAdapter.discover
    monkeypatch.setattr(ClaudeAdapter, "discover", lambda self: [listed.append(None), discover(self)][1])

    cut(Request(claude_log(shop, 3), "2", force=True))

    # To find the session, before and after the cut its family and the other logs with its records, and what is beside them.
    assert len(listed) == 5


def test_a_preview_of_a_long_text_masks_its_beginning_alone(monkeypatch):
    masked: list[int] = []
    mask = lines_of_cuts.mask
    monkeypatch.setattr(lines_of_cuts, "mask", lambda text: [masked.append(len(text)), mask(text)][1])
    assert lines_of_cuts.preview("tambor roklit " * 100_000).startswith("tambor roklit")
    assert sum(masked) < 10_000


@parametrize_subtests(
    "secret",
    [
        "-----BEGIN RSA PRIVATE KEY-----\n" + "Zm9yIHRlc3Rz" * 9_000 + "\n-----END RSA PRIVATE KEY-----\n",
        "token=ghp_" + "a1B2c3D4e5F6" * 3 + " ",
    ],
)
def test_a_preview_says_what_it_would_say_of_the_whole_masked_text(secret):
    text = f"look: {secret}{'and so on ' * 9_000}"
    assert lines_of_cuts.preview(text) == shorten(lines_of_cuts.mask(text), lines_of_cuts.PREVIEW_CHARACTERS)


def test_a_file_without_a_word_is_not_parted_into_its_words(tmp_path, monkeypatch):
    parted: list[int] = []
    word = cut_words._LONG_WORD
    counting = SimpleNamespace(findall=lambda text: [parted.append(len(text)), word.findall(text)][1])
    monkeypatch.setattr(cut_words, "_LONG_WORD", counting)
    file = tmp_path / "index.db"
    file.write_bytes(b"tambor roklit swordfish77zqx " * 10_000)
    assert cut_words.words_at(file, frozenset({"velkan"})) == set()
    assert parted == []
    assert cut_words.words_at(file, frozenset({"velkan", "roklit", "swordfish77zq"})) == {"roklit"}
    assert parted


def test_a_cut_resolves_no_paths_of_the_other_logs_of_the_index(shop, monkeypatch):
    session_id = codex_log(shop, 2)
    for exchanges in range(3, 33):
        codex_log(shop, exchanges)
    indexed()
    resolved: list[Path] = []
    resolve = Path.resolve
    monkeypatch.setattr(Path, "resolve", lambda path: [resolved.append(path), resolve(path)][1])
    assert cut(Request(session_id, "0", force=True))["index"]["updated"]
    assert len({path for path in resolved if path.suffix == ".jsonl"}) < 20
