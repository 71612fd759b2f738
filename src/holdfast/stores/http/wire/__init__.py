"""The connections to a lock service, for each world, and the HTTP that both speak."""
