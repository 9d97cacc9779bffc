"""The console: pages that show a cluster live in a browser, served by every node."""
