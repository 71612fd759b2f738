"""An etcd cluster, simulated; `plan` has its runs, and variants to be caught."""
