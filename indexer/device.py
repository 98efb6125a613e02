"""Where a model computes: on the GPU that PyTorch has, else on the processor."""

from __future__ import annotations

import logging
import os

log = logging.getLogger(__name__)

PROCESSOR = "cpu"


def best_device() -> str:
    """PyTorch's name of what computes fastest here; ``SMART_FORK_DEVICE`` may name another one."""
    if chosen := os.environ.get("SMART_FORK_DEVICE", "").strip().lower():
        return chosen
    import torch

    try:
        if torch.cuda.is_available():  # AMD's as well
            return "cuda"
        if torch.backends.mps.is_available():
            return "mps"
    except Exception as error:  # noqa: BLE001 - a driver that is half installed: there is no GPU then
        log.warning("no GPU can be used: %s", error)
    return PROCESSOR
