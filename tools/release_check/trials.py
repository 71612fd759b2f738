"""What is tried with an installed package: in an empty environment and an empty folder."""

from __future__ import annotations

CORE = """
import asyncio, importlib.resources, os, subprocess, sys
import holdfast, holdfast.aio, holdfast.fences, holdfast.metrics, holdfast.adapters

assert (importlib.resources.files("holdfast") / "py.typed").is_file()
assert "site-packages" in holdfast.__file__, holdfast.__file__
url = f"sqlite://{os.getcwd()}/locks.db"
with holdfast.connect(url) as locks:
    with locks.lock("x", purpose="correctness", protects=holdfast.fences.FileFence()) as lease:
        lease.guard.write("out.txt", "1")
        first = lease.token

async def main():
    async with holdfast.aio.connect(url) as locks, locks.lock("x") as lease:
        assert lease.token > first

asyncio.run(main())
program = os.path.join(os.path.dirname(sys.executable), "holdfast")
for words in (["--version"], ["run", "x", "--", "true"], ["stores"], ["demo", "--ttl", "1s"]):
    subprocess.run([program, "--url", url, *words] if words[0] == "run" else [program, *words],
                   check=True, stdout=subprocess.DEVNULL, timeout=120)
"""
"""The core, with any extra or none."""

UNREACHABLE = """
import holdfast
try:
    holdfast.connect("{url}").lock("x").try_acquire()
except holdfast.BackendUnavailable as refused:
    print(refused)
else:
    raise SystemExit("nobody is there, and yet there was a grant")
"""
"""A store whose driver is there, and whose server is not."""

SERVICE = """
import os, re, signal, subprocess, sys, urllib.request
program = os.path.join(os.path.dirname(sys.executable), "holdfast")
url = f"sqlite://{os.getcwd()}/service.db"
with subprocess.Popen([program, "serve", "--url", url, "--port", "0"], text=True,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as service:
    try:
        said = ""
        while not (found := re.search(r"http://[\\w.:]+", said)):
            line = service.stdout.readline()
            assert line, said
            said += line
        for path in ("/healthz", "/readyz", "/openapi.json", "/"):
            with urllib.request.urlopen(found[0].rstrip("/") + path, timeout=60) as answer:
                assert answer.status == 200 and answer.read()
    finally:
        service.send_signal(signal.SIGTERM)
"""

OF_EXTRA = {
    "apscheduler": "import apscheduler.schedulers.background, holdfast.contrib.apscheduler",
    "celery": "import celery, holdfast.contrib.celery",
    "django": "import django, holdfast.contrib.django",
    "fastapi": "import starlette, holdfast.contrib.fastapi",
    "redis": UNREACHABLE.format(url="redis://127.0.0.1:1/0")
    + "\nimport redis; holdfast.fences.RedisFence(redis.Redis(port=1))",
    "etcd": UNREACHABLE.format(url="etcd://127.0.0.1:1"),
    "zookeeper": UNREACHABLE.format(url="zookeeper://127.0.0.1:1"),
    "postgres": UNREACHABLE.format(url="postgresql://nobody@127.0.0.1:1/none"),
    "mysql": UNREACHABLE.format(url="mysql://nobody@127.0.0.1:1/none"),
    "objects": "import holdfast.fences, obstore.store\n"
    "holdfast.fences.ObjectFence(obstore.store.MemoryStore()).put('x', b'1', 34)",
    "otel": "import holdfast.tracing",
    "server": SERVICE,
    "sim": "import runpy, sys\n"
    "sys.argv[1:] = ['--backend', 'redis', '--first', '1', '--seeds', '2']\n"
    "runpy.run_module('holdfast.sim', run_name='__main__')",
}
"""What an extra is for, tried. An extra that is not here has the trial of the core."""
