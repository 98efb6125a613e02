"""What is one agent's stands in `smart_fork/agents`, and nowhere else. The table says where it still does, and shrinks."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Where agents are known: their own folder, and the conversations of the demo.
ROOMS = ("smart_fork/agents/", "smart_fork/demo/")
#: Names of agents, of their variables, and of what they call their folders and logs. A style sheet has a cursor, too.
_AGENTS = re.compile(r"claude|codex|cursor(?!:)|slug|rollout", re.IGNORECASE)
_BEFORE_A_DOCSTRING = {tokenize.ENCODING, tokenize.INDENT, tokenize.NEWLINE}
_NOTHING = {tokenize.COMMENT, tokenize.NL}

#: Lines of code that name an agent, for each module. A module may have fewer; whoever makes it so may lower the number.
KNOWN = {
    "indexer/paths.py": 4,
    "indexer/transcripts/actions.py": 1,
    "indexer/transcripts/boilerplate.py": 1,
    "indexer/transcripts/ours.py": 1,
    "smart_fork/caller.py": 12,
    "smart_fork/cli/__init__.py": 1,
    "smart_fork/cli/demonstration.py": 3,
    "smart_fork/cli/excise.py": 10,
    "smart_fork/cli/families.py": 1,
    "smart_fork/cli/forking.py": 1,
    "smart_fork/cli/hooks.py": 4,
    "smart_fork/cli/picker.py": 1,
    "smart_fork/cli/search.py": 2,
    "smart_fork/cli/serving.py": 1,
    "smart_fork/cli/setup.py": 1,
    "smart_fork/cli/starting.py": 6,
    "smart_fork/copies/claude_copy.py": 3,
    "smart_fork/copies/codex_copy.py": 3,
    "smart_fork/copies/copying.py": 9,
    "smart_fork/copies/side_files.py": 1,
    "smart_fork/doctor.py": 1,
    "smart_fork/engines/base.py": 1,
    "smart_fork/excise/__init__.py": 13,
    "smart_fork/excise/branching.py": 13,
    "smart_fork/excise/loading.py": 5,
    "smart_fork/excise/writing.py": 8,
    "smart_fork/families/branching.py": 1,
    "smart_fork/families/kin.py": 10,
    "smart_fork/families/lineage.py": 3,
    "smart_fork/forking/bringing_back.py": 4,
    "smart_fork/forking/confirmation.py": 2,
    "smart_fork/forking/fan_out.py": 1,
    "smart_fork/forking/launch.py": 1,
    "smart_fork/forking/occupied.py": 2,
    "smart_fork/forking/orders.py": 1,
    "smart_fork/forking/spawning.py": 1,
    "smart_fork/forking/starting.py": 2,
    "smart_fork/hooks/__main__.py": 1,
    "smart_fork/hooks/command.py": 1,
    "smart_fork/hooks/receive.py": 4,
    "smart_fork/hooks/settings.py": 10,
    "smart_fork/page/showing.py": 1,
    "smart_fork/places/tmux.py": 1,
    "smart_fork/registry.py": 1,
    "smart_fork/retrieval/background.py": 1,
    "smart_fork/retrieval/finding.py": 3,
    "smart_fork/retrieval/listing.py": 2,
    "smart_fork/retrieval/results.py": 2,
    "smart_fork/server/__init__.py": 1,
    "smart_fork/server/following.py": 1,
    "smart_fork/server/searching.py": 5,
    "smart_fork/server/starting.py": 2,
    "smart_fork/service/rotating.py": 4,
    "smart_fork/service/surroundings.py": 4,
    "smart_fork/service/units/search_path.py": 1,
    "smart_fork/service/units/settings.py": 3,
    "smart_fork/sessions.py": 1,
    "smart_fork/terminal/welcome.py": 1,
    "smart_fork/terminal/words.py": 1,
    "smart_fork/workers/following.py": 2,
    "smart_fork/workers/staged_copies.py": 1,
}


def test_an_agent_is_named_in_its_own_room_only():
    counted = {module: number for module in _modules() if (number := len(_lines_that_name_an_agent(ROOT / module)))}

    assert {} == {module: number for module, number in counted.items() if number > KNOWN.get(module, 0)}
    assert [] == [module for module in KNOWN if module not in counted], "take it out of the table"


def test_an_agent_in_a_comment_or_docstring_does_not_count(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        '"""Of Claude."""\n\ndef read(agent):\n    """Like Codex."""\n    # as Claude does\n'
        '    return agent == "claude"\n\nTEXT = """\nCodex\n"""\nCSS = "cursor: pointer"\ncodex = 1\n'
    )

    assert {6, 9, 12} == _lines_that_name_an_agent(module)


def _modules() -> list[str]:
    paths = (path for package in ("indexer", "smart_fork") for path in (ROOT / package).rglob("*.py"))
    modules = sorted(path.relative_to(ROOT).as_posix() for path in paths)
    return [module for module in modules if not module.startswith(ROOMS)]


def _lines_that_name_an_agent(path: Path) -> set[int]:
    """By their numbers. Comments and docstrings may name agents: they tell people why."""
    lines: set[int] = set()
    before = tokenize.ENCODING
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in _NOTHING:
                continue
            if not (token.type == tokenize.STRING and before in _BEFORE_A_DOCSTRING):
                lines |= {
                    token.start[0] + number
                    for number, text in enumerate(token.string.splitlines())
                    if _AGENTS.search(text)
                }
            before = token.type
    return lines
