"""The APIs that make, change and describe topics and settings."""
