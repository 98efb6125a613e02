"""Indexing takes what others leave over: the thread that does it steps back, and nothing else of its process.

A process that is not root cannot become more important again, nor can what it starts. So a service that was started
with a low priority would give that to every agent it starts.
"""

from __future__ import annotations

import logging
import os
import sys
import threading

#: Of -20…19. On Linux the disk follows: its priority is that of the processor, where none of its own was set.
NICE = 5
#: "Work that the user does not wait for", in <sys/qos.h> of macOS: less of processor and disk.
_QOS_CLASS_UTILITY = 0x11

log = logging.getLogger(__name__)
_thread = threading.local()


def processors() -> int:
    """How many processors the calling thread may use: one where it has stepped back, else all of this process."""
    if getattr(_thread, "has_stepped_back", False):
        return 1
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def step_back() -> None:
    """Lower the priority of the calling thread, for good; threads that it starts on Linux have the same.

    It takes one processor from then on.
    """
    _thread.has_stepped_back = True
    try:
        if sys.platform == "darwin":  # where `setpriority` would be for the whole process
            import ctypes

            ctypes.CDLL(None).pthread_set_qos_class_self_np(_QOS_CLASS_UTILITY, 0)
        elif sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    except (OSError, AttributeError) as error:
        log.info("indexing has the priority of everything else: %s", error)
