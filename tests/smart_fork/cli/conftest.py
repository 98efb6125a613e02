"""Fixtures that the tests of the commands share."""

from tests.smart_fork.commands import command_model, run

__all__ = ["command_model", "run"]
