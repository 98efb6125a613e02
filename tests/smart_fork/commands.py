"""Running a command in this process."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from smart_fork.cli.main import main
from smart_fork.cli.output import answer_in_json
from tests.smart_fork.world import WordsModel

__all__ = ["command_model", "run"]


@pytest.fixture
def command_model(monkeypatch):
    """The commands use the model that needs no weights."""
    for name in ("smart_fork.finding.session_library", "smart_fork.doctor", "indexer.default_embedder"):
        monkeypatch.setattr(f"{name}.configured_embedder", lambda **_: WordsModel())


@pytest.fixture
def run(capsys, monkeypatch, shop, command_model):
    """Run a command in the repository; gives its exit code, stdout and stderr."""
    monkeypatch.chdir(shop)
    monkeypatch.setenv("COLUMNS", "200")

    def command(*words: str) -> SimpleNamespace:
        monkeypatch.setattr("sys.argv", ["smart-fork", *words])
        monkeypatch.setattr("__main__.__package__", None)  # as of a program, also under `python -m pytest`
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return SimpleNamespace(code=ended.value.code, out=said.out, err=said.err)

    yield command
    answer_in_json(asked=False)  # other tests ask without a command
