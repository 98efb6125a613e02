"""Write docs/reference/ from the code: the commands, the MCP tools and the settings. ``make reference`` runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from indexer.settings import GIVEN, VARIABLES, Variable
from smart_fork import config
from smart_fork.cli import help_pages
from smart_fork.cli.command_table import COMMANDS
from smart_fork.cli.main import command_line
from smart_fork.cli.system import agent_variables

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/reference"
CATALOGUE = ROOT / "smart_fork/cli/mcp.json"
_MADE = "<!-- Written by `make reference`. Do not edit. -->\n\n"
_COMMANDS_INTRO = """# Commands

Every command has `--help` and, except `mcp` and `serve`, `--json`. Data goes to stdout, everything else to stderr.
Exit codes: 0 done, 1 error, 2 wrong use, 3 not found. `team` commands also use 4 (not logged in, or not allowed) and
9 (the other side has advanced). Arguments that start with a dash follow `--`.

A session is named by its id, by 8 or more characters of it, or by a worker's id. If two agents share an id, put the
agent before it: `codex:70f1a07f`.
"""
_TOOLS_INTRO = """# MCP tools

Agents see seven tools. `smart-fork mcp --tools all` lists all of them. Descriptions are the texts that the agents read.
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
    panels: dict[str, list[str]] = {}
    for name, entry in COMMANDS.items():
        if help_pages.examples(name):
            panels.setdefault(entry.panel, []).extend(_pages_of(group.commands[name], name))
    for panel, parts in panels.items():
        text += f"\n## {panel}\n\n" + "\n".join(parts)
    return _MADE + text


def _pages_of(command: Any, path: str) -> Iterator[str]:
    if not help_pages.examples(path):
        return
    inner = getattr(command, "commands", {})
    arguments = "".join(f" {one.make_metavar(_context(command))}" for one in command.params if _is_argument(one))
    usage = f"smart-fork {path}{' COMMAND' if inner else arguments}"
    lines = [f"### {path}", "", *_paragraphs(command.help or ""), "```", usage, "```", ""]
    rows = [row for one in command.params if (row := _row(one))]
    if rows:
        lines += ["| Option | Meaning |", "| --- | --- |", *rows, ""]
    lines += ["```sh", *(f"smart-fork {example}" for example in help_pages.examples(path)), "```", ""]
    yield "\n".join(lines)
    for name, one in inner.items():
        yield from _pages_of(one, f"{path} {name}")


def _context(command: Any) -> Any:
    import click

    return click.Context(command)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _paragraphs(text: str) -> Iterator[str]:
    for one in text.split("\n\n"):
        yield " ".join(one.split())
        yield ""


def _row(option: Any) -> str:
    if _is_argument(option) or option.hidden or option.name in {"help", "as_json"}:
        return f"| `{_cell(option.human_readable_name)}` | {_cell(option.help)} |" if _is_argument(option) else ""
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"| {names} | {_cell(option.help)}{_default(option)} |"


def _default(option: Any) -> str:
    plain = not option.is_flag and isinstance(option.default, (int, float, str)) and option.default != ""
    said = "default" in (option.help or "").lower()
    return f" Default: {option.default}." if plain and not said else ""


def _tools() -> str:
    catalogue = orjson.loads(CATALOGUE.read_bytes())
    few = catalogue["few"]
    text = _TOOLS_INTRO
    for tool in sorted(catalogue["tools"], key=lambda one: one["name"] not in few):
        shown = "Listed by default." if tool["name"] in few else "Listed with `--tools all`."
        text += f"\n## {tool['name']}\n\n{tool['title']}. {shown}\n\n```text\n{tool['description'].strip()}\n```\n"
        rows = list(_arguments(tool["inputSchema"]))
        if rows:
            text += "\n| Argument | Type | Meaning |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    text += _PROMPTS_INTRO
    for prompt in catalogue["prompts"]:
        text += f"| `{prompt['name']}` | `{prompt['arguments'][0]['name']}` | {_cell(prompt['description'])} |\n"
    return _MADE + text


def _arguments(schema: Any) -> Iterator[str]:
    required = schema.get("required", [])
    for name, one in schema.get("properties", {}).items():
        mark = " (required)" if name in required else ""
        yield f"| `{name}` | {_type(one)}{mark} | {_cell(one.get('description', ''))} |"


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
