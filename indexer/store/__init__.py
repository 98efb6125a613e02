"""The search index on the disk: its interface, its tables, its queries, its vectors, and its repair."""
