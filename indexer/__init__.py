"""The package that reads agents' logs and builds the search index from them. It never imports ``smart_fork``."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())
