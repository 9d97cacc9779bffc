"""How much a publisher may have under way at a node."""

SESSION_WINDOW_BYTES = 16 << 20
"""Of one session; a node says so in Welcome."""
CONNECTION_WINDOWS = 4
"""All sessions of a connection together may have so many times the window of one."""
