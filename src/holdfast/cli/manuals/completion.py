"""The manual of `holdfast completion`."""

from . import Manual

MANUAL = Manual(
    synopsis="completion bash|zsh|fish",
    text="""\
Prints a script by which a shell completes commands and their options.
""",
    groups=(),
    examples={
        "holdfast completion bash > ~/.local/share/bash-completion/completions/holdfast": "bash, with "
        "its package bash-completion",
        "holdfast completion zsh > ~/.zfunc/_holdfast": "zsh, where ~/.zfunc is in $fpath",
        "holdfast completion fish > ~/.config/fish/completions/holdfast.fish": "fish",
    },
    statuses={},
    uses_store=False,
)
