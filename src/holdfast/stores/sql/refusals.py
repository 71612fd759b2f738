"""The refusals that all databases have in common, in the same words."""

from __future__ import annotations

from ...errors import BackendUnavailable, ConfigError


def permission_missing(address: object, message: str) -> ConfigError:
    """Returns the error for a user who may not do what holdfast needs."""
    return ConfigError(
        f"{address} refuses holdfast a permission that it needs: {message}; `holdfast schema` "
        "prints what it needs"
    )


def tables_missing(address: object, message: str) -> BackendUnavailable:
    """Returns the error for tables or procedures that are not there any more."""
    return BackendUnavailable(
        f"{address} lacks tables or procedures of holdfast: {message}; were they dropped? A new "
        "manager creates them, and `holdfast schema` prints how"
    )


def check_format(found: int | None, known: int, elsewhere: str) -> None:
    """Refuses tables of another format than the one that is known, or none after their creation."""
    if found is None:
        raise BackendUnavailable("the tables of holdfast were created, and are not there")
    if found != known:
        raise ConfigError(
            f"the tables of holdfast in this database have format {found}, and this release knows "
            f"{known}; update holdfast everywhere, or use {elsewhere}"
        )
