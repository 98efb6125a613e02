"""Write docs/reference/ from the code: the commands, the MCP tools and the settings. ``make reference`` runs it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from indexer.environment import GIVEN, VARIABLES, Variable
from smart_fork import config
from smart_fork.cli.command import examples
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.config import agent_variables
from smart_fork.cli.main import command_line

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
CATALOGUE = ROOT / "smart_fork/cli/mcp.json"
_MADE = "<!-- Written by `make reference`. Do not edit. -->\n\n"
_COMMANDS_INTRO = """# Commands

Every command has `--help` and, except `mcp` and `serve`, `--json`. Data goes to stdout, everything else to stderr.
Exit codes: 0 done, 1 error, 2 wrong use, 3 not found. `team` commands also use 4 (not logged in, or not allowed) and
9 (the other side has advanced). Arguments that start with a dash follow `--`:
`smart-fork find -- "-Werror breaks the build"`.

A session is named by its id, by 8 or more characters of it, or by a worker's id. If two agents share an id, put the
agent before it: `codex:70f1a07f`.

`--help` shows the usage of a command and more examples. Here each argument and option is described once a section;
a command names its shared ones after *Also*.
"""
#: Said once in the introduction.
_DASH = re.compile(r'(?:What|Words) start\w* with a dash go\w* after "--":.*')
_TOOLS_INTRO = """# MCP tools

Agents see the first seven tools, with `smart-fork mcp --tools all` all. Descriptions are the texts that they read.
"""
_AGENTS_INTRO = """
## Agents

Programs and folders of the agents. Each agent reads its own folder variable, and smart-fork follows it.

"""
_FILE_INTRO = """
## config.toml

The file is `~/.smart-fork/config.toml`. A key with a dot is in the section before the dot: `team.never` is `never` in
`[team]`. An unknown key is an error.

| Key | Meaning |
| --- | --- |
"""
_PROMPTS_INTRO = """
## Prompts

Claude Code shows them as `/mcp__smart-fork__NAME`.

| Prompt | Argument | Meaning |
| --- | --- | --- |
"""


def pages() -> dict[str, str]:
    """Return each page of the reference by its file name."""
    return {"commands.md": _commands(), "tools.md": _tools(), "settings.md": _settings()}


def _commands() -> str:
    text = _COMMANDS_INTRO
    group: Any = command_line(*COMMANDS)
    panels: dict[str, dict[str, Any]] = {}
    for name, entry in COMMANDS.items():
        panels.setdefault(entry.panel, {}).update(_within(group.commands[name], name))
    for panel, inner in panels.items():
        if inner:
            text += f"\n## {panel}\n\n" + _panel(inner)
    return _MADE + text


def _within(command: Any, path: str) -> dict[str, Any]:
    """Return a command and those in it that have examples, by their words."""
    if not examples(path):
        return {}
    found = {path: command}
    for name, one in getattr(command, "commands", {}).items():
        found |= _within(one, f"{path} {name}")
    return found


def _panel(commands: dict[str, Any]) -> str:
    """The parameters that several commands share, then each command with its own."""
    rows = {path: [row for one in command.params if (row := _row(one))] for path, command in commands.items()}
    counted = Counter(row for own in rows.values() for row in own)
    shared: dict[str, str] = {}
    for (name, meaning), count in counted.most_common():
        if count > 1:
            shared.setdefault(name, meaning)
    text = ""
    if shared:
        text = "In several of these commands:\n\n" + _listed(sorted(shared.items())) + "\n"
    shown = {example for path, command in commands.items() if not _is_group(command) for example in _examples(path)}
    for path, command in commands.items():
        own = [(name, meaning) for name, meaning in rows[path] if shared.get(name) != meaning]
        also = [name.split(", ")[0] for name, meaning in rows[path] if shared.get(name) == meaning]
        examples = [one for one in _examples(path) if one != path and not (_is_group(command) and one in shown)]
        text += f"### {path}\n\n" + "\n".join(_paragraphs(command.help or ""))
        text += f"\n{_listed(own)}" if own else ""
        text += f"\nAlso {', '.join(also)}.\n" if also else ""
        text += "\n```sh\n" + "".join(f"smart-fork {one}\n" for one in examples) + "```\n" if examples else ""
        text += "\n"
    return text


def _listed(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"* {name}: {meaning}\n" for name, meaning in rows)


def _examples(path: str) -> list[str]:
    """Return the first example of a command; `--help` shows the others."""
    return list(examples(path)[:1])


def _is_group(command: Any) -> bool:
    return hasattr(command, "commands")


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text, without what the introduction says of every command."""
    for one in text.split("\n\n"):
        kept = _DASH.sub("", " ".join(one.split())).strip()
        if kept:
            yield f"{kept}\n"


def _row(parameter: Any) -> tuple[str, str] | None:
    """Return the names of a parameter and its meaning."""
    if _is_argument(parameter):
        return f"`{parameter.metavar or parameter.name.upper()}`", " ".join((parameter.help or "").split())
    if parameter.hidden or parameter.name in {"help", "as_json"}:
        return None
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return names, " ".join((parameter.help or "").split()) + _default(parameter)


def _default(option: Any) -> str:
    plain = not option.is_flag and isinstance(option.default, (int, float, str)) and option.default != ""
    said = "default" in (option.help or "").lower()
    return f" Default: {option.default}." if plain and not said else ""


def _tools() -> str:
    catalogue = orjson.loads(CATALOGUE.read_bytes())
    few = catalogue["few"]
    text = _TOOLS_INTRO
    told: set[str] = set()
    for tool in sorted(catalogue["tools"], key=lambda one: one["name"] not in few):
        text += f"\n## {tool['name']}\n\n```text\n{tool['description'].strip()}\n```\n"
        rows = dict(_arguments(tool["inputSchema"]))
        own = [row for row in rows if row not in told]
        also = [name for row, name in rows.items() if row in told]
        told.update(rows)
        text += "\n" + "\n".join(own) + "\n" if own else ""
        text += f"\nAs in the tools above: {', '.join(also)}.\n" if also else ""
    text += _PROMPTS_INTRO
    for prompt in catalogue["prompts"]:
        text += f"| `{prompt['name']}` | `{prompt['arguments'][0]['name']}` | {_cell(prompt['description'])} |\n"
    return _MADE + text


def _arguments(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the description of each argument, and its name."""
    required = schema.get("required", [])
    for name, one in schema.get("properties", {}).items():
        mark = " (required)" if name in required else ""
        yield f"* `{name}`, {_type(one)}{mark}: {' '.join(one.get('description', '').split())}", f"`{name}`"


def _type(schema: Any) -> str:
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"] if one.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    kind = schema.get("type", "object")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _settings() -> str:
    text = "# Settings\n\n`smart-fork config` shows each setting with its value and where the value comes from.\n"
    text += "\n## Environment variables\n\n" + _variables(VARIABLES)
    text += _AGENTS_INTRO
    text += _variables(agent_variables())
    text += "\n## Set for you\n\nsmart-fork sets these for the programs that it starts. Do not set them yourself.\n\n"
    text += "| Variable | Meaning |\n| --- | --- |\n"
    text += "".join(f"| `{one}` | {_cell(one.meaning)} |\n" for one in GIVEN)
    text += _FILE_INTRO
    for section, one in config.all_keys():
        key = f"{section}.{one.name}" if section else one.name
        text += f"| `{key}` | {_cell(one.metadata['meaning'])} |\n"
    return _MADE + text


def _variables(rows: tuple[Variable, ...]) -> str:
    head = "| Variable | Meaning | Default |\n| --- | --- | --- |\n"
    return head + "".join(f"| `{one}` | {_cell(one.meaning)} | {_cell(one.default)} |\n" for one in rows)


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file_name, written in pages().items():
        (FOLDER / file_name).write_text(written, "utf-8")
