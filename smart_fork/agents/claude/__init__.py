"""Claude Code, versions 1.0 to 2.1 seen."""
