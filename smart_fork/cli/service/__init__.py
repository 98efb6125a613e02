"""The service: a long-running process that keeps the index fresh.

It also offers MCP over HTTP, a page for the browser, and one embedding model for all of its clients.
"""
