"""Topics whose keys count once."""
