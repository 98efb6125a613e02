"""Programs that a hostile repository names wherever git takes one, and that write a file when they are run."""

from __future__ import annotations

from pathlib import Path

HOOKS = ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman", "update")
ATTRIBUTES = "* filter=bad diff=bad merge=bad\n.gitattributes -filter\n"


def program(folder: Path) -> Path:
    """One that writes ``CANARY`` beside itself, whatever it is called with."""
    made = folder / "bad-program"
    made.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{folder}/CANARY'\ncat\n", encoding="utf-8")
    made.chmod(0o755)
    return made


def settings(bad: Path) -> str:
    """Every setting of git that names a program."""
    return f"""
[core]
    fsmonitor = {bad}
    hooksPath = {bad.parent}/hooks
    editor = {bad}
    pager = {bad}
    sshCommand = {bad}
    askPass = {bad}
    gitProxy = {bad}
    alternateRefsCommand = {bad}
[sequence]
    editor = {bad}
[pager]
    status = {bad}
    diff = {bad}
[alias]
    status = !{bad}
    diff-tree = !{bad}
    rev-parse = !{bad}
[credential]
    helper = {bad}
[diff]
    external = {bad}
    submodule = log
    ignoreSubmodules = none
[diff "bad"]
    command = {bad}
    textconv = {bad}
[merge "bad"]
    driver = {bad}
[filter "bad"]
    clean = {bad}
    smudge = {bad}
    required = true
[filter "a.b=c d"]
    process = {bad}
    required
[gpg]
    program = {bad}
[commit]
    gpgSign = true
[log]
    showSignature = true
[submodule]
    recurse = true
[submodule "part"]
    update = !{bad}
    ignore = none
[status]
    submoduleSummary = true
[protocol "ext"]
    allow = always
[protocol]
    allow = always
[remote "origin"]
    url = ext::{bad}
    promisor = true
    partialclonefilter = blob:none
[hook "bad"]
    command = {bad}
    event = post-checkout
[gc]
    auto = 1
"""


def plant(own: Path, bad: Path) -> None:
    """In what git keeps for a repository: its configuration, its hooks, its attributes."""
    (own / "hooks").mkdir(exist_ok=True)
    (bad.parent / "hooks").mkdir(exist_ok=True)
    for hooks in (own / "hooks", bad.parent / "hooks"):
        for name in HOOKS:
            (hooks / name).write_bytes(bad.read_bytes())
            (hooks / name).chmod(0o755)
    with (own / "config").open("a", encoding="utf-8") as file:
        file.write(settings(bad))
    (own / "info").mkdir(exist_ok=True)
    (own / "info/attributes").write_text(ATTRIBUTES, encoding="utf-8")
