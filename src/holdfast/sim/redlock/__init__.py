"""Several independent Redis nodes, simulated; `plan` has its runs, and variants to be caught."""
