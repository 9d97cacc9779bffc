"""Keys that count once: what a node knows of them, and what it leaves out because of that."""
