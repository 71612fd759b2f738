"""The stores that are SQL databases: what PostgreSQL, MySQL and MariaDB have in common.

Each database runs the steps of a lock itself, in procedures that are installed beside the tables: a
step is one call and one transaction, so no client can stop in the middle of one with a row locked.

    failures     a call that got no answer, and one that the database gave up
    connections  a few connections, lent for one call each
    store        the steps, as calls of those procedures; it knows no world
    states       locks as `inspect` shows them, out of rows
    _async       the adapter, and the waking of waiters
"""
