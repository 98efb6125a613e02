"""The entry point of ``python -m smart_fork``, which is the program ``smart-fork``."""

from smart_fork.cli.launcher import main

if __name__ == "__main__":
    main()
