"""The files of session logs and merged logs: the only part that opens data files."""
