"""The command line. This module imports nothing, so that frequent commands start fast."""
