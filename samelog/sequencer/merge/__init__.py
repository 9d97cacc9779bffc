"""From positions to merge instructions, and from these to merged logs."""
