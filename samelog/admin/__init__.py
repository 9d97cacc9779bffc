"""Administration: one table of requests, which nodes serve over HTTP and `client` makes of them."""
