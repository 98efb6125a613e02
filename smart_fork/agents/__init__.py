"""The agents: a folder each, and one line here."""

from __future__ import annotations

from smart_fork.agents.agent import ReadOnlyAgent
from smart_fork.agents.claude import Claude
from smart_fork.agents.codex import Codex
from smart_fork.agents.copilot import Copilot
from smart_fork.agents.cursor import Cursor
from smart_fork.agents.description import Home
from smart_fork.agents.gemini import Gemini
from smart_fork.agents.known import Known
from smart_fork.agents.opencode import OpenCode
from smart_fork.agents.qwen import Qwen

AGENTS = Known(
    Claude(),
    Codex(),
    Cursor(),
    Qwen(),
    OpenCode(),
    Gemini(),
    Copilot(),
    ReadOnlyAgent("droid", "Droid", Home("FACTORY_HOME_OVERRIDE", ".factory", ("sessions",), inside=".factory")),
    ReadOnlyAgent("goose", "Goose", Home("GOOSE_PATH_ROOT", ".local/share/goose", ("sessions",), inside="data")),
    ReadOnlyAgent("kimi", "Kimi Code", Home("KIMI_CODE_HOME", ".kimi-code", ("sessions",))),
    ReadOnlyAgent("pi", "Pi", Home("PI_CODING_AGENT_DIR", ".pi/agent", ("sessions",))),
    ReadOnlyAgent("amp", "Amp", Home("XDG_DATA_HOME", ".local/share/amp", ("threads",), inside="amp")),
)
