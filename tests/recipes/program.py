"""A process that runs an example, and stands still wherever it calls one of the example's functions.

    python -m recipes.program EXAMPLE FUNCTION [WORD…]

Before each call of the function, or after it (`after:FUNCTION`), it prints `CALL` on a line and reads a
line. When there are no more lines to be read, it stands still no more. Without a function (`-`) it
just runs.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
CALL = "the function is called"
AFTER = "after:"


def stop_at(module: Any, function: str) -> None:
    """Has calls of a function stand still: one of the module's, or of what it imports (`x.name`)."""
    *path, name = function.removeprefix(AFTER).split(".")
    for part in path:
        module = getattr(module, part)
    original = getattr(module, name)

    def stop() -> None:
        print(CALL, flush=True)
        sys.stdin.readline()

    def stop_and_call(*arguments: Any, **keywords: Any) -> Any:
        if not function.startswith(AFTER):
            stop()
        result = original(*arguments, **keywords)
        if function.startswith(AFTER):
            stop()
        return result

    setattr(module, name, stop_and_call)


def main() -> None:
    example, function, *words = sys.argv[1:]
    path = EXAMPLES / f"{example}.py"
    spec = spec_from_file_location(example, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    if function != "-":
        stop_at(module, function)
    sys.argv = [str(path), *words]
    module.main()


if __name__ == "__main__":
    main()
