"""Real servers to break: started on free ports in temporary folders, ended with whoever started them.

The tests start theirs here too.
"""
