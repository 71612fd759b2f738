"""What the Redis backends share: addresses, the wire, the names of keys, scripts and answers.

`aio` and `threads` are the same `Wire` for the two worlds: one connection on which all tasks' commands
are pipelined, and one connection for each thread that is calling. Everything else is written once.
"""
