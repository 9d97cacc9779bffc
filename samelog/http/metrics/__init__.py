"""What nodes and sidecars tell monitoring: /metrics, in Prometheus' text (docs/metrics.md)."""
