"""Which earlier session knew? Questions and answers taken from the history of repositories that keep their sessions."""
