"""The failures of a request to a service: no answer came, or none that can be believed."""

from __future__ import annotations

from ....errors import BackendUnavailable
from ....refusals import reason


class Failure(Exception):
    """A request without an answer. It may have been carried out, unless it is `untouched`."""

    def __init__(
        self, text: str, endpoint: str, *, untouched: bool = False, unreachable: bool = False
    ) -> None:
        super().__init__(text)
        self.text = text
        self.endpoint = endpoint
        self.untouched = untouched
        """True if it is known that the request was not carried out, and never will be."""
        self.unreachable = unreachable
        """True if there was no connection at all."""

    def in_words(self) -> BackendUnavailable:
        """Returns the error for the user."""
        return BackendUnavailable(
            f"the lock service at {self.endpoint} cannot be used: {self.text}"
        )


CLOSED = "this connection to it is closed"
LATE = "it did not answer in time"


def closed(endpoint: str) -> Failure:
    """Returns the failure of a request after `close`."""
    return Failure(CLOSED, endpoint, untouched=True)


def late(endpoint: str) -> Failure:
    """Returns the failure of a request that was sent, and whose answer did not come in time."""
    return Failure(LATE, endpoint)


def unreachable(error: BaseException, endpoint: str) -> Failure:
    """Returns the failure of a request for which there was no connection."""
    if isinstance(error, TimeoutError):
        text = str(error) or "it could not be reached in time"
    else:
        text = f"it cannot be reached: {reason(error)}"
    return Failure(text, endpoint, untouched=True, unreachable=True)
