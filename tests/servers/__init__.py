"""Real servers for the tests: started on free ports in temporary folders, ended with the run."""
