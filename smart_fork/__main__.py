"""The program: ``smart-fork``, and ``python -m smart_fork``."""

from smart_fork.cli.program import main

if __name__ == "__main__":
    main()
