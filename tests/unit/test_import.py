"""What `import holdfast` brings in, and where `connect()` goes when nothing is named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    kept = {k: v for k, v in os.environ.items() if k not in ("HOLDFAST_URL", "XDG_STATE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_blocking_users_get_no_event_loop_and_nothing_slow() -> None:
    found = run(
        "import sys, holdfast\n"
        "with holdfast.connect('memory://') as locks, locks.lock('x'): pass\n"
        "slow = 'asyncio dataclasses logging subprocess importlib.metadata tempfile pathlib ssl'\n"
        "print([name for name in slow.split() if name in sys.modules])"
    )
    assert found.strip() == "[]"


def test_the_core_needs_the_standard_library_only() -> None:
    found = run(
        "import sys, tempfile; before = set(sys.modules)\n"
        "import holdfast, holdfast.aio, asyncio\n"
        "async def main():\n"
        "    async with holdfast.aio.connect(f'sqlite://{tempfile.mkdtemp()}/x') as locks:\n"
        "        async with locks.lock('x'): pass\n"
        "asyncio.run(main())\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "ours = {'holdfast', '_missing_stdlib_info'}  # the second is in Debian's standard library\n"
        "print(sorted(names - set(sys.stdlib_module_names) - ours))"
    )
    assert found.strip() == "[]"


def test_fences_need_no_driver_before_they_are_used() -> None:
    found = run(
        "import sys; before = set(sys.modules)\n"
        "import holdfast.fences, holdfast.versioned\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(n for n in names - set(sys.stdlib_module_names) if n != 'holdfast'))\n"
        "print('holdfast.fences' in sys.modules, 'asyncio' in sys.modules)"
    )
    assert found.split() == ["[]", "True", "False"]
    assert run("import sys, holdfast; print('holdfast.fences' in sys.modules)").strip() == "False"


FALL_BACK = (
    "import holdfast\n"
    "locks = holdfast.connect()\n"
    "holdfast.connect()\n"
    "with locks.lock('x') as lease: print('token', lease.token > 0)\n"
    "from holdfast.fences import MemoryFence\n"
    "try: locks.lock('x', purpose='correctness', protects=MemoryFence())\n"
    "except holdfast.GuaranteeError as error: print(error)\n"
)


def test_without_a_url_it_is_the_embedded_store_of_the_user(tmp_path: Path) -> None:
    told = run(FALL_BACK, XDG_STATE_HOME=str(tmp_path))
    assert "token True" in told
    assert told.count("this machine and this user only") == 1
    assert "the URL of the store" in told
    assert (tmp_path / "holdfast" / "locks.db").exists()
    assert (tmp_path / "holdfast").stat().st_mode & 0o777 == 0o700


def test_the_environment_names_the_store(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/here.db"
    told = run(FALL_BACK, HOLDFAST_URL=url, XDG_STATE_HOME=str(tmp_path))
    assert "this machine" not in told
    assert (tmp_path / "here.db").exists()
    assert not (tmp_path / "holdfast").exists()
