"""The seam to the file system, and what session logs and merged logs share above it."""
