"""`mysql://…` and `mariadb://…`: locks in tables of a MySQL or MariaDB database."""
