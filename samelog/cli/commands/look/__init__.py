"""Commands that look at a running cluster and change nothing."""
