"""What operators and monitoring ask of nodes and sidecars over HTTP (docs/rest.md)."""
