"""The search index on the disk: its interface, its tables, queries, vectors and repair."""
