"""``smart-fork find`` without a model: words alone. A row of benchmarks/peers.py.

python benchmarks/_words_only.py INTENT [PROJECT]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.searches import find


class NoModel:
    """An embedder that is not there."""

    model = ""
    dimensions = 384

    def embed(self, texts: Sequence[str]) -> NoReturn:
        """Always fails."""
        raise RuntimeError(f"no model for {len(texts)} texts")


if __name__ == "__main__":
    project = sys.argv[2] if len(sys.argv) > 2 else None
    request = FindRequest(sys.argv[1], agent_type="both", include_automated=True)
    answer = find(request, Engine(NoModel(), embed_seconds=0), project).as_json()
    assert answer["search_mode"] == "lexical", answer["search_mode"]
    print(json.dumps(answer))
