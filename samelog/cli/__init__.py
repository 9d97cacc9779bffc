"""The command line: one module per subcommand, each with a click command called `command`."""
