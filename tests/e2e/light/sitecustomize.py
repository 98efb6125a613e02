"""On a program's PYTHONPATH this folder makes smart-fork the light install: importing PyTorch takes longer than most tests.

Programs with PyTorch: those of ``tests/indexer`` and ``tests/drills``, and the service of ``tests/e2e/demo_service.py``.
"""

import sys

sys.modules["sentence_transformers"] = None
