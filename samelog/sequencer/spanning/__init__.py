"""Units of work that span several groups: decided in group 0, carried out in each of them."""
