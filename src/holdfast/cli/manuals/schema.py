"""The manual of `holdfast schema`."""

from . import STORE, Manual

MANUAL = Manual(
    synopsis="schema URL",
    text="""\
Prints the tables and procedures that locks need in a database, as SQL. Holdfast creates them on first
use; where its user may not do that, let somebody who may run this once.

Nothing is connected to; the URL says which kind of database it is.
""",
    groups=(STORE,),
    examples={
        "holdfast schema postgresql:// | psql --single-transaction mydatabase": "for PostgreSQL",
        "holdfast schema mysql:// | mysql mydatabase": "for MySQL and MariaDB",
    },
    statuses={},
    uses_store=False,
)
