"""Sessions of one person on several machines, over a ref of a git remote of his own."""
