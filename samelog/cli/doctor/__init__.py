"""What `samelog doctor` looks at: this host, the files of nodes, and a running cluster."""
