"""Where members are: the sites of a cluster, and which of them vote."""
