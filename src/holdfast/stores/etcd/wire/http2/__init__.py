"""HTTP/2 and gRPC, as much of both as a client of etcd needs.

**Why it is ours.** gRPC's own library has threads and mutexes inside. A child that is forked while
they are busy hangs or dies, and so does a program whose signal handler raises an exception while a
call is under way. Here no thread reads for another, no mutex is held while a socket is used, and
whatever interrupts a call costs its connection and nothing else. It is also cheaper: half the time
of a call, a third of the processor's.

**How it is built.**

    frames      the bytes of frames
    headers     header blocks: those that we send are made once, those that we receive are remembered
    grpc        messages within a stream, and the status at its end
    sending     the half of a connection that sends: streams in their turn, within the server's windows
    connection  the state of one connection and its streams, without any input or output
    blocking    a socket for one thread at a time: waits with poll, and looks at the clock
    multiplexed a protocol for asyncio: the calls of all tasks on one connection

Only `wire.aio` and `wire.threads` use it. Another wire takes its place by having the same two
classes.

**Header blocks.** `hpack` encodes and decodes them. Ours never use the table that the two ends of a
connection may share (each header is sent in full, and marked as never to be indexed): so the block
for a method is the same on every connection, whatever size of table the server allows, and a user's
token is in no table. What we receive does use the table; a block that only points into it means the
same until the table changes.

**Flow control.** Our windows are as large as they can be and are refilled: what a lock manager
receives is small, and every call has a deadline. What we send keeps to the windows of the server,
and to its limit of concurrent streams: a stream beyond that waits for its turn.

**What may be sent again.** A stream that the server refused (`REFUSED_STREAM`), or that came behind
the last one it says it will handle (`GOAWAY`), was not carried out: its end says so (`untouched`),
and the wire sends it once more. Every other end without a status leaves that open.

**Limits.** No server push, no priorities, no compression of messages, no HTTP/1.1 upgrade, no
proxies. A breach of the protocol by the server ends the connection (`Broken`), without telling the
server why. A message may have 512 MiB, a header block 64 KiB.
"""
