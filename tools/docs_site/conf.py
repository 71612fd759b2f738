"""Settings of Sphinx for the site."""

from __future__ import annotations

import re
from typing import Any

import holdfast

project = "Holdfast"
author = "The Holdfast contributors"
copyright = "the Holdfast contributors, Apache-2.0"
release = version = holdfast.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "misc.highlighting_failure",  # output of commands, and JSON with an ellipsis
    "ref.python",  # the blocking and the asyncio names are the same
]

highlight_language = (
    "none"  # what names no language is a command with a word about it, or its output
)
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "literal"  # docstrings are Markdown: one backtick around code

html_theme = "furo"
html_title = f"Holdfast {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b5a7d",
        "color-brand-content": "#0b5a7d",
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    },
    "dark_css_variables": {
        "color-brand-primary": "#6cc3e8",
        "color-brand-content": "#6cc3e8",
    },
}
pygments_style = "default"  # its colours can be told from their ground
pygments_dark_style = "github-dark"

INDENTED = re.compile(r"^ {4,}\S")


def as_code(*arguments: Any) -> None:
    """Marks what is indented in a docstring as code, as Markdown has it."""
    lines: list[str] = arguments[-1]
    marked: list[str] = []
    inside = False
    for at, line in enumerate(lines):
        indented = bool(INDENTED.match(line))
        before = lines[at - 1] if at else ""
        if indented and not inside and not before.strip():
            marked += ["::", ""]
        inside = indented or (inside and not line.strip())
        marked.append(line)
    lines[:] = [line for line in marked if not line.startswith("Alias for field number")]


def without_arguments(*arguments: Any) -> tuple[str, None] | None:
    """Leaves out how an error is made: users only catch it."""
    return ("", None) if arguments[1] == "exception" else None


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_code)
    app.connect("autodoc-process-signature", without_arguments)
