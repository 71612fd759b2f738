"""A ZooKeeper ensemble, simulated; `plan` has its runs, and variants to be caught."""
