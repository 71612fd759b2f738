"""`http://` and `https://`: the locks of a lock service, on whatever store stands behind it."""
