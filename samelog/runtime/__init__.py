"""Drivers at the edge, narrow and replaceable: event loop, TLS, inotify, syncs, clock."""
