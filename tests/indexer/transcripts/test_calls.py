"""Commands that commit and test, and what their results prove."""

from __future__ import annotations

import pytest

from indexer.transcripts.calls import _NAMED, _NAMES, CommandPurpose, PendingCommands, purpose_of
from indexer.transcripts.model import Proof
from tests.support.cases import parametrize_subtests

COMMITS, TESTS = CommandPurpose(True, False, False), CommandPurpose(False, True, False)
HERE = "git commit -m \"$(cat <<'EOF'\nMend it; then | pipe\nEOF\n)\""


def test_no_way_to_name_a_deed_is_passed_over():
    ways = [way.replace(r"\b", "").replace("?", "") for way in _NAMED.pattern.split("|")]

    assert [] == [way for way in ways if not any(name in way for name in _NAMES)]
    assert [] == [name for name in _NAMES if name not in "|".join(ways)]


@parametrize_subtests(
    "line",
    ["git commit -m x", "git add . && git commit -qm 'a; b'", "git -C /x -c user.name=me commit", HERE,
     f"git add a && {HERE} && git push", "cd /x && GIT_EDITOR=true git commit --amend --no-edit", "bash -c 'git commit'"],
)  # fmt: skip
def test_a_commit_is_known(line):
    assert purpose_of(line).commits


@parametrize_subtests(
    "line",
    ["git log --grep commit", "git show HEAD", "git commit --dry-run", "git commit -h", "echo git commit", "commit",
     "git commit-tree x", "grep 'git commit' a", "gh pr create --title 'git commit'", "git help commit"],
)  # fmt: skip
def test_what_only_speaks_of_a_commit_is_none(line):
    deed = purpose_of(line)

    assert deed is None or not deed.commits


@parametrize_subtests(
    "line",
    ["pytest -q", "uv run pytest", "python -m pytest a", "python3 -m unittest", "python manage.py test", "tox", "npm test",
     "npm t", "npm run test:unit", "yarn e2e-tests", "pnpm --filter web test", "npx vitest run", "npx jest a", "bun test",
     "deno test", "node --test", "go test ./...", "env GOFLAGS=-v go test ./x", "cargo test", "cargo nextest run",
     "make test", "make check", "./gradlew :app:testDebugUnitTest", "mvn -q verify", "dotnet test", "swift test",
     "bundle exec rspec", "rake spec", "vendor/bin/phpunit", "ctest", "mix test", "./run-tests.sh", "bash scripts/test.sh",
     "mise run test:ci", "just test", "docker compose exec web pytest", "cd a && pytest", "timeout 60 pytest"],
)  # fmt: skip
def test_a_test_run_is_known(line):
    assert purpose_of(line).tests


@pytest.mark.parametrize(
    "line",
    ["test -f a", 'test -n "$x" && ls', "cat tests/test_a.py", "ls tests", "npm install test-utils", "go build ./test",
     "go vet ./...", "grep -r test src", "pytest --collect-only", "pytest --version", "cargo test --no-run", "vim latest.md",
     "sed -n '1,140p' a/validation_test.go", 'cat "a b" tests/test_a.py', 'grep -n "" run_tests.sh', "npm run contest", "git checkout test", "echo tests", "mkdir -p spec", "python attest.py", ""],
)  # fmt: skip
def test_what_only_speaks_of_tests_is_none(line):
    assert purpose_of(line) is None


@parametrize_subtests("behind", [" | tail -5", "; echo done", " || true", " &", " 2>&1 | tee log", "\necho done"])
def test_what_stands_behind_a_command_hides_how_it_has_gone(behind):
    assert purpose_of(f"pytest -q{behind}").hidden
    assert not purpose_of(f"set -o pipefail; cd x; pytest -q{' | tail' if behind == ' | tail -5' else ''}").hidden
    assert not purpose_of("pytest -q 2>&1 && echo done").hidden


NOT_RUN = ("The user doesn't want", "This command requires approval", "<tool_use_error>")


def proof(line: str, output: str, said: bool | None = None) -> Proof:
    deeds = PendingCommands()
    deeds.begin("c", line)
    return PendingCommands(deeds.kept(), not_run=NOT_RUN).end("c", output, said=said)


@parametrize_subtests(
    ("line", "output", "said", "proves"),
    [
        ("git commit -m x", "[main 1a2b3c4] x\n 1 file changed", True, Proof.COMMITTED),
        ("git commit -m x", "[main (root-commit) 1a2b3c4] x", None, Proof.COMMITTED),
        ("git commit -m x && git push", "Exit code 1\n[main 1a2b3c4] x\nrejected", False, Proof.COMMITTED),
        ("git commit -qm x", "", True, Proof.COMMITTED),
        ("git commit -m x", "On branch main\nnothing to commit, working tree clean", True, Proof.NOTHING),
        ("git commit -m x", "Exit code 1\nOn branch main\nnothing to commit", False, Proof.NOTHING),
        ("git commit -qm x; git status", "clean", True, Proof.NOTHING),
        ("git commit -m x", "Exit code 1\nhook: lint failed", False, Proof.FAILED),
        ("git commit -m x", "The user doesn't want to proceed with this tool use.", False, Proof.NOTHING),
        ("git commit -m x", "This command requires approval", False, Proof.NOTHING),
        ("pytest", "Exit code 1\n1 failed", False, Proof.FAILED),
        ("pytest", "all is well", True, Proof.TESTS_PASSED),
        ("pytest | tail -1", "5 passed in 0.1s", True, Proof.TESTS_PASSED),
        ("pytest | tail -1", "\x1b[31m1 failed\x1b[0m, 4 passed in 0.1s", True, Proof.FAILED),
        ("pytest | tail -1", "=== 1 error in 0.10s ===", True, Proof.FAILED),
        ("pytest | head -1", "collecting", True, Proof.NOTHING),
        ("go test ./... | tail", "ok  \ta\t0.1s\nFAIL\tb\t0.1s", True, Proof.FAILED),
        ("go test ./...; echo", "ok  \ta\t0.1s", True, Proof.TESTS_PASSED),
        ("cargo test 2>&1 | tail", "test result: ok. 5 passed; 0 failed; 0 ignored", True, Proof.TESTS_PASSED),
        ("cargo test 2>&1 | tail", "test result: FAILED. 4 passed; 1 failed", True, Proof.FAILED),
        ("npx jest | tail", "Tests:       1 failed, 5 passed, 6 total", True, Proof.FAILED),
        ("npx vitest run | tail", " Tests  5 passed (5)", True, Proof.TESTS_PASSED),
        ("node --test | tail", "# pass 5\n# fail 0", True, Proof.TESTS_PASSED),
        ("node --test | tail", "# pass 5\n# fail 2", True, Proof.FAILED),
        ("mvn test | tail", "Tests run: 5, Failures: 0, Errors: 0\nBUILD SUCCESS", True, Proof.TESTS_PASSED),
        ("mvn test | tail", "Tests run: 5, Failures: 1, Errors: 0\nBUILD FAILURE", True, Proof.FAILED),
        ("pytest && git commit -m x", "5 passed\n[main 1a2b3c4] x", True, Proof.COMMITTED),
        ("pytest && git commit -m x", "Exit code 1\n1 failed", False, Proof.FAILED),
        ("pytest", "<tool_use_error>Blocked</tool_use_error>", False, Proof.NOTHING),
        ("pytest", "Command running in background with ID: b1", True, Proof.NOTHING),
        ("pytest", "exit_code: 0\n", None, Proof.TESTS_PASSED),
        ("pytest", "Chunk ID: 1\nProcess exited with code 2\nOutput:\nno", None, Proof.FAILED),
        ("pytest", "killed", None, Proof.NOTHING),
        ("just test", "Exit code 127\nbash: just: command not found", False, Proof.NOTHING),
        ("ls", "5 passed", True, Proof.NOTHING),
    ],
)  # fmt: skip
def test_an_answer_proves_what_it_says(line, output, said, proves):
    assert proof(line, output, said) is proves
