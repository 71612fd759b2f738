"""The worker of a run, as coroutines; its blocking twin is generated."""
