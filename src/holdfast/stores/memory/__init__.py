"""`memory://`: locks of one process, for users' own tests."""
