"""How many calls a record costs: counted, not timed, so that the figure has no noise."""
