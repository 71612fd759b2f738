"""The embedded store under real faults: many processes, killed, frozen, forked, out of disk."""
