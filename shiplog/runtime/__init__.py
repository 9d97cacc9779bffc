"""Drivers at the edge: event loop, TLS connections, inotify, disk syncs, clock. Each narrow, each replaceable."""
