"""Copies of segments outside the cluster: made before a segment is archived, and brought back."""
