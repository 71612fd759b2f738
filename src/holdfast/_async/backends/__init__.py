"""One adapter for each kind of store; `..contract` says what each has to do."""
