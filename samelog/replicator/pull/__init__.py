"""Pull: logs from nodes to subscribers, and to nodes that repair themselves."""
