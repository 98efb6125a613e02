"""``python -m smart_fork``."""

from smart_fork.cli import main

main()
