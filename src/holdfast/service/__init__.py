"""The lock service: `holdfast serve`, for clients in any language.

    settings, configuration  how a service is started, and where that is said
    server       a socket, uvicorn on it, and a graceful stop
    app          the ASGI application: `create_app(settings)`
    endpoints    from a path and a method to an operation, and from its end to an answer
    tables       what can be asked: each operation with its fields
    operations, fields       what an operation is made of, and how each field is checked
    call         one request, read and checked before anything is sent
    names        names of locks in paths
    answers, problems, views     what is sent back
    authority    who the caller is, and what it may do
    hooks        what metrics and logs are told

    service      the stores of a service, and its stop
    store        one namespace of the operator's store
    locks, batches           the verbs of one lock, and of several; listing has the pages of lists
    waiting, heartbeats      held requests, and how they keep their places
    given_up     owners whose late requests are refused
    bells, wakeups           wake-ups for those who wait without a held request
    elections    the changes of an election
    events, streams          what happens to locks, told to all who listen
    fences       a fence as a service
    about        guarantees, doctor, deadlocks; openapi describes it all
    health       does it run, does the store answer

It stands on the backend contract: each request is one verb of it. Leases belong to the callers, who
renew them. Nothing is kept here that may not be lost at any time.
"""

from .settings import Settings as Settings


def __getattr__(name: str) -> object:
    if name == "create_app":
        from .app import create_app  # which needs the extra `server`

        return create_app
    raise AttributeError(name)
