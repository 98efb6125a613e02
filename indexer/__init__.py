"""From agent logs to a searchable index. Never imports ``smart_fork``."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
