"""For the programs of a machine: smart-fork as the light install has it. Importing PyTorch takes longer than most tests.

With it, and with real models: ``tests/indexer``.
"""

import sys

sys.modules["sentence_transformers"] = None
