"""The APIs that describe the cluster."""
