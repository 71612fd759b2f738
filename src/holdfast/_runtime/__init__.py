"""All that differs between the two worlds, asyncio and threads, written twice under the same names.

The engine in `_async` imports `aio`; its generated twin in `_sync` imports `threads`. What has no
twin (cancellation, `asyncio.timeout`, task groups) stays inside here. Each world has these files:

    signal      what one thread or task waits for, and another sets
    routine     work beside the caller, calls that block, clean-up, the interruption of a body
    alarm       calls back at set times
    poller      calls back when a descriptor becomes readable
"""
