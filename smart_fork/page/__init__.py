"""The web page of the service: search, read and compare sessions, start forks, and watch workers."""
