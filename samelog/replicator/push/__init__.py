"""Push: session logs from publishers to nodes."""
