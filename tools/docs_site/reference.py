"""The pages of the API reference: the public names of each module, described by their docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType

MODULES = {
    "holdfast": "Blocking code: `import holdfast`.",
    "holdfast.aio": (
        "Asyncio code: `import holdfast.aio`. The names that are not here are those of `holdfast`."
    ),
    "holdfast.fences": "The guards at the resource. See [fences](../fences/index.md).",
    "holdfast.versioned": "Compare-and-set. See [do you need a lock at all?](../no-lock.md)",
    "holdfast.adapters": "Locks by the interfaces of others. See [habits](../habits.md).",
    "holdfast.adapters.aio": "The same for asyncio. See [habits](../habits.md).",
    "holdfast.metrics": "Figures for Prometheus. See [metrics](../metrics.md).",
    "holdfast.tracing": "Spans for OpenTelemetry. See [traces](../metrics.md#traces).",
    "holdfast.findings": "What the doctor finds. See [the doctor](../doctor.md).",
}
"""The public modules, and a sentence about each."""

KINDS = {"Functions": "function", "Classes": "class", "Errors": "exception", "Values": "data"}
"""The sections of a page, and the directive that describes what is in each."""


def section_of(value: object) -> str:
    """Returns the section in which a value is described."""
    if inspect.isclass(value):
        return "Errors" if issubclass(value, BaseException) else "Classes"
    return "Functions" if inspect.isroutine(value) else "Values"


def public_names(module: ModuleType) -> list[str]:
    """Returns the names that a module gives to its users, in order."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    return sorted((name for name in names if name != "__version__"), key=lambda name: name.lower())


def directive(module: ModuleType, name: str) -> str:
    """Returns the directive that describes one name."""
    kind = KINDS[section_of(getattr(module, name))]
    options = ""
    if kind in ("class", "exception"):
        options = "   :members:\n"
        options += "   :inherited-members: Exception, BaseException, OSError, tuple, int, str\n"
        options += "   :special-members: __call__\n"
    return f".. auto{kind}:: {module.__name__}.{name}\n{options}"


def is_shared(module: ModuleType, name: str) -> bool:
    """Says whether `name` is described on the page of `holdfast` already."""
    first = import_module("holdfast")
    value = getattr(module, name)
    return module is not first and getattr(first, name, None) is value


def page(name: str) -> str:
    """Returns the page of one module."""
    module = import_module(name)
    names = [item for item in public_names(module) if not is_shared(module, item)]
    parts = [f"# {name}\n\n{MODULES[name]}\n"]
    for title in ("Functions", "Classes", "Errors", "Values"):
        chosen = [item for item in names if section_of(getattr(module, item)) == title]
        if chosen:
            body = "\n".join(directive(module, item) for item in chosen)
            parts.append(f"## {title}\n\n```{{eval-rst}}\n{body}\n```\n")
    return "\n".join(parts)


def pages() -> dict[str, str]:
    """Returns the text of every page of the reference, by its place in the site."""
    return {f"api/{name}.md": page(name) for name in MODULES}
