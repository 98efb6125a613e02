"""The service as a job of the system's own: a launchd agent on macOS, a systemd user unit on Linux."""
