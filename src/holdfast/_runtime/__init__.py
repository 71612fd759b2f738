"""All that differs between the two worlds: one narrow shim, written twice under the same names.

The engine in `_async` imports `aio`; its generated twin in `_sync` imports `threads`. What has no
twin (cancellation, `asyncio.timeout`, task groups) stays inside here.
"""
