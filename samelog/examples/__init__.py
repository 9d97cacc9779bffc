"""Programs that show how samelog is used, on top of its exported names and command line alone."""
