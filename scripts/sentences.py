"""Every sentence that people can be shown, by module: ``make sentences`` writes tests/golden/sentences.txt to be read.

Python: each text of four words or more, with ``{}`` for inserted values. Not docstrings, SQL, log records, patterns, or
lists of words. The page: the text of its templates, without tags.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests/golden/sentences.txt"
FEWEST_WORDS = 4
_LOGGED = {"debug", "info", "warning", "error", "exception", "critical"}
_CODE = re.compile(
    r"\b(SELECT|INSERT|CREATE|DELETE FROM|UPDATE|ALTER|PRAGMA|WITH RECURSIVE|DROP|BEGIN|ORDER BY|GROUP BY|NOT NULL)\b"
    r"|\(\?|^\W*[\w.]+\(|^\w+(, \w+)+$|\w = (\?|NULL)|^\[Unit\]"
)
#: So many words without a capital letter or a point are a list of words, such as stop words.
_LIST = 16
#: Made-up conversations, and words that secrets are recognized by.
_PASSED = ("smart_fork/cli/demo", "indexer/masking")


def sentences() -> str:
    """Return the file."""
    parts = []
    for path in sorted([*ROOT.glob("smart_fork/**/*.py"), *ROOT.glob("indexer/**/*.py")]):
        if any(path.is_relative_to(ROOT / one) for one in _PASSED):
            continue
        said = list(dict.fromkeys(_of_module(path)))
        parts += [_part(path, said)] if said else []
    for path in sorted(ROOT.glob("smart_fork/page/templates/*.html")):
        said = list(dict.fromkeys(_of_template(path.read_text("utf-8"))))
        parts += [_part(path, said)] if said else []
    return "\n".join(parts)


def _part(path: Path, said: list[str]) -> str:
    return f"## {path.relative_to(ROOT)}\n" + "".join(f"{one}\n" for one in said)


def _of_module(path: Path) -> Iterator[str]:
    nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
    passed = {id(node) for node in _unsaid(nodes)}
    for node in nodes:
        if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in passed:
            continue
        text = _text(node)
        if _is_sentence(text) and not _CODE.search(text):
            yield " ".join(text.split())


def _is_sentence(text: str) -> bool:
    words = text.split()
    if len(words) < FEWEST_WORDS:
        return False
    words = [word for word in words if re.search(r"[^\W\d_]{2,}", word)]
    return len(words) >= FEWEST_WORDS and (len(words) < _LIST or re.search(r"[A-Z.:;]", text) is not None)


def _unsaid(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """Docstrings, what is logged, and the parts of a text that is put together, which is said as a whole."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOGGED:
            yield from (inner for argument in node.args for inner in ast.walk(argument))
        elif isinstance(node, ast.JoinedStr):
            yield from (inner for inner in node.values if isinstance(inner, ast.Constant))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _of_template(text: str) -> Iterator[str]:
    text = re.sub(r"{#.*?#}|<(script|style)\b.*?</\1>", " ", text, flags=re.DOTALL)
    attributes = re.findall(r'\b(?:title|aria-label|placeholder|alt)="([^"]*)"', text)
    text = re.sub(r"{%.*?%}|<[^>]*>", "\n", re.sub(r"{{.*?}}", "{}", text, flags=re.DOTALL), flags=re.DOTALL)
    for one in (*attributes, *text.splitlines()):
        said = " ".join(re.sub(r"{{.*?}}", "{}", one).split())
        if _is_sentence(said):
            yield said


if __name__ == "__main__":
    FILE.write_text(sentences(), "utf-8")
