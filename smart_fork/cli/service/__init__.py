"""The service: a process that keeps the index fresh, and offers MCP over HTTP, the page, and one embedding model."""
