"""One Redis server, simulated; `plan` has its runs, and variants to be caught."""
