"""`postgresql://…`: locks in the tables of a PostgreSQL database."""
