"""The repository whose sessions leave the machine, or come to it."""

from __future__ import annotations

import pytest


@pytest.fixture
def root(home):
    folder = home / "shop"
    folder.mkdir()
    return folder
