"""One value for each table of a configuration file."""
