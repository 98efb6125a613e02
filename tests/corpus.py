"""A corpus of sessions that real people had, laid out once for the tests of one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CORPUS = Path(__file__).resolve().parents[2] / "shared/corpus"


@pytest.fixture(scope="session")
def real_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sessions of the corpus. A test that changes one puts it back."""
    if not (CORPUS / "lay_out.py").is_file():
        pytest.skip("no corpus beside the checkout")
    folder = tmp_path_factory.mktemp("corpus")
    subprocess.run([sys.executable, str(CORPUS / "lay_out.py"), str(folder)], check=True, capture_output=True)
    return folder / "home"
