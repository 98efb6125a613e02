"""Code lines of each room: lines without docstrings, comments and blanks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("indexer", "smart_fork")
#: A comment, or a string. Python's own tokens say the same, and take seven times as long.
_COMMENT_OR_STRING = re.compile(
    r"""#[^\n]*|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", re.DOTALL
)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Return the number of lines with code."""
    text = _COMMENT_OR_STRING.sub(lambda found: "" if found[0][0] == "#" else found[0].replace("\n", "x\nx"), source)
    lines = {number for number, line in enumerate(text.split("\n"), 1) if line and not line.isspace()}
    for node in statements(ast.parse(source)):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk over a module and its statements, without their expressions."""
    yield node
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(node, name, ())
        for one in inner if isinstance(inner, list) else ():
            yield from statements(one)


@cache
def rooms() -> Counter[str]:
    """Return the code lines of each room: a package's folder, or the modules beside these folders."""
    counted = Counter[str]()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            counted["/".join(path.relative_to(ROOT).parts[:-1][:2])] += code_lines(path.read_text("utf-8"))
    return counted
