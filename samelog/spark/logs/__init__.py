"""Where Spark reads logs: nodes, copies on this host, and archives."""
