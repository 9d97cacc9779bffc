"""What `samelog demo` runs: the whole path on real data, and a proof of what came out."""
