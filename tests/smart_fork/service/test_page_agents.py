"""What a session's agent thought, which models answered, and what its sub-agents said and did, on the page."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest

from smart_fork import sessions
from smart_fork.agents import AGENTS, READERS
from smart_fork.page.conversation import reading
from smart_fork.page.steps import Steps
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.service.test_page import HOSTILE, Tags
from tests.smart_fork.world import Did

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
FOUND = Did("Agent", {"description": f"Look for listeners {HOSTILE}", "prompt": "List them"}, "One is never removed.")


def answered(log: Path, change) -> None:
    """Have `change` see each record of a log."""
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        change(record)
    log.write_text("".join(json.dumps(record) + "\n" for record in records))


def delegated(world, shop, *, beside: bool = False, name: str = "a1b2c3d") -> str:
    """A session of Claude Code that has set a sub-agent to work, whose log is where it is now, or was before."""
    session = world.worked("claude", shop, "> Find the leak", FOUND, "One was found.")
    log = world.log_of(session)
    answered(log, lambda one: one.update(toolUseResult={"agentId": name}) if "tool_result" in str(one) else None)
    folder = log.parent if beside else log.parent / session / "subagents"
    folder.mkdir(parents=True, exist_ok=True)
    ran = Did("Bash", {"command": "rg setInterval"}, "\n".join(f"line {n}" for n in range(9)) + SECRET)
    other = world.worked("claude", shop, f"> List them {HOSTILE}", ran, f"room.ts:41 {SECRET}")
    lines = world.log_of(other).read_text().splitlines()
    world.log_of(other).unlink()
    told = [json.loads(line) | {"isSidechain": True, "agentId": name, "sessionId": session} for line in lines]
    (folder / f"agent-{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in told))
    return session


@pytest.mark.parametrize("beside", [False, True], ids=["in the session's folder", "beside the log"])
def test_the_conversation_of_a_sub_agent_is_a_link_away_from_the_step_that_began_it(served, world, shop, beside):
    session = delegated(world, shop, beside=beside)

    (way,) = re.findall(r'href="(/session/[^"]+/agents/[^"]+)"', served.get(f"/session/claude/{session}")[1])
    status, text = served.get(way)
    (output,) = re.findall(r'href="(/session/[^"]+/output/[^"]+)"', text)
    printed = served.get(output)[1]

    assert (200, f"/session/claude/{session}/agents/a1b2c3d") == (status, way)
    assert ("rg setInterval" in text, "room.ts:41" in text, f'href="/session/claude/{session}"' in text) == (True,) * 3
    assert (SECRET in text + printed, len(re.findall(r"line \d", printed)), output.startswith(way)) == (False, 9, True)
    assert f'href="{way}?at=' in printed, "back leads to the sub-agent"
    assert not [name for _, attrs in Tags(text).found for name in attrs if name.startswith("on") or name == "style"]
    assert not [tag for tag, attrs in Tags(text).found if tag == "script" and "src" not in attrs]
    assert [404, 404, 404] == [served.get(f"{way}{one}")[0] for one in ("x", "?at=99", "/output/9/0")]


@pytest.mark.parametrize("name", ["../../secret", "a/b", "..", "", "a1b2c3d\0", "none"])
def test_what_names_a_sub_agent_never_becomes_a_path(served, world, shop, name):
    session = delegated(world, shop)
    log = world.log_of(session)
    (log.parent / "agent-secret.jsonl").write_text((log.parent / session / "subagents/agent-a1b2c3d.jsonl").read_text())
    answered(log, lambda one: one.update(toolUseResult={"agentId": name}) if "toolUseResult" in one else None)

    text = served.get(f"/session/claude/{session}")[1]

    assert "/agents/" not in text
    assert "Look for listeners" in text


def test_the_sub_agents_of_qwen_code_are_found_by_the_call_that_began_them(tmp_path):
    (log := tmp_path / "slug/chats/33333333-3333-4333-8333-333333333333.jsonl").parent.mkdir(parents=True)
    (logs := tmp_path / "slug/subagents" / log.stem).mkdir(parents=True)
    call = {"functionCall": {"id": "call_70c9c698", "name": "agent", "args": {"description": "count"}}}
    chat = [("user", [{"text": "Count"}]), ("assistant", [call])]
    lines, before = [], None
    for kind, parts in chat:
        lines.append({"uuid": str(uuid.uuid4()), "parentUuid": before, "type": kind, "message": {"parts": parts}})
        before = lines[-1]["uuid"]
    log.write_text("".join(json.dumps(one) + "\n" for one in lines))
    (logs / "agent-general-purpose-call_70c9c698.jsonl").write_text((FIXTURES / "qwen/subagent.jsonl").read_text())
    session, agents = READERS["qwen"].read(log, keep_raw=True).session, AGENTS["qwen"].subagents

    begun = agents.begun(session)

    assert {"call_70c9c698": "general-purpose-call_70c9c698"} == begun
    read = agents.read(session, begun["call_70c9c698"])
    assert ["count the files", "Noted: count the files"] == [turn.text for _, turn in read.messages]
    assert agents.read(session, "../x") is None


THOUGHT = f"First the **listeners**.\nThen {HOSTILE} {SECRET}"


def think(agent: str, record: dict) -> None:
    """Put a thought where that agent writes its own."""
    if agent == "claude" and record.get("type") == "assistant":
        record["message"]["content"].insert(0, {"type": "thinking", "thinking": THOUGHT, "signature": "c2ln"})
    elif agent == "qwen" and record.get("type") == "assistant":
        record["message"]["parts"].insert(0, {"text": THOUGHT, "thought": True})
    elif agent == "gemini" and record.get("type") == "gemini":
        record["thoughts"] = [{"subject": "", "description": THOUGHT}]
    elif agent == "copilot" and record.get("type") == "assistant.message":
        record["data"]["reasoningText"] = THOUGHT


@pytest.mark.parametrize(
    ("agent", "fixture", "models"),
    [
        ("claude", "fork-of-fork", ("claude-opus-4-8",)),
        ("qwen", "tools", ("mock",)),
        ("gemini", "tools", ("gemini-3.8-flash",)),
        ("copilot", "tools", ("mock",)),
        ("codex", "person", ("gpt-5",)),
    ],
)
def test_the_thoughts_and_models_of_every_agent_are_told(agent, fixture, models, tmp_path):
    name = next((FIXTURES / agent).glob(f"{fixture}*.jsonl")).name
    log = tmp_path / "chats" / name
    log.parent.mkdir()
    log.write_text((FIXTURES / agent / name).read_text())
    records = [json.loads(line) for line in log.read_text().splitlines()]
    for record in records:
        think(agent, record)
    if agent == "codex":
        answers = [n for n, one in enumerate(records) if one.get("payload", {}).get("role") == "assistant"]
        item = {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": THOUGHT}],
            "encrypted_content": "gAAAA",
        }
        records.insert(answers[0], records[answers[0]] | {"payload": item})
        records = [one | ({"ordinal": n} if "ordinal" in one else {}) for n, one in enumerate(records)]
    log.write_text("".join(json.dumps(record) + "\n" for record in records))
    session = READERS[agent].read(log, keep_raw=True).session

    page, file = (reading(session, work=AGENTS[agent].work, whole=whole) for whole in (False, True))

    def thoughts(of):
        steps = [step for one in of.exchanges for message in one.messages for step in message.steps]
        return [step for step in steps if step.kind == "thought"]

    assert models == session.models
    assert thoughts(page)
    assert {("First the **listeners**.", True, False)} == {
        (one.line, HOSTILE in one.last[0], SECRET in one.last[0]) for one in thoughts(page)
    }
    assert [] == thoughts(file), "what is sent to others is without thoughts"
    assert not [step for number in range(len(session.turns)) for step in Steps(session, None, thoughts=True).of(number) if step.kind == "thought"]  # fmt: skip


def test_a_thought_is_folded_and_the_model_is_told_on_the_page_and_by_show(served, world, shop, run):  # noqa: F811
    session = world.claude(shop, "Find the leak", "It is the timer.")
    answered(world.log_of(session), lambda one: think("claude", one))
    names = ["claude-opus-4-8", "<b>x</b>", 7, "claude-opus-4-8", "<synthetic>"]
    for name in names:
        world.write_claude(
            session,
            shop,
            [one | {"message": one["message"] | {"model": name}} for one in _more(world, session, shop)],
            "a",
        )

    text = served.get(f"/session/claude/{session}")[1]
    told = json.loads(run("show", session, "--json").out)

    assert ["claude-opus-4-8", "<b>x</b>"] == told["models"]
    assert re.findall(r'<span class="model"[^>]*>([^<]*)</span>', text) == ["claude-opus-4-8", "&lt;b&gt;x&lt;/b&gt;"]
    (inside,) = re.findall(r'<li class="step step-thought"[^>]*>(.*?)</li>', text, re.DOTALL)
    assert inside.strip().startswith("<details>"), "folded"
    assert "<strong>listeners</strong>" in inside
    assert SECRET not in inside
    assert "1 thought" in text
    assert "listeners" not in run("export", session, "--markdown").out


def _more(world, session: str, shop) -> list[dict]:
    """An answer more at the end of a session."""
    last = json.loads(world.log_of(session).read_text().splitlines()[-1])
    (_, answer) = world.claude_records(session, shop, "and", "More.")
    return [answer | {"parentUuid": last["uuid"]}]


def test_a_sub_agent_whose_log_is_gone_is_said_to_be(served, world, shop):
    session = delegated(world, shop)
    way = f"/session/claude/{session}/agents/a1b2c3d"
    located = sessions.locate(session)
    (located.path.parent / session / "subagents/agent-a1b2c3d.jsonl").unlink()

    assert (404, True) == ((said := served.get(way))[0], "no such sub-agent" in said[1])
    assert "/agents/" not in served.get(f"/session/claude/{session}")[1]
