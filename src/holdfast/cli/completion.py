"""`holdfast completion`: what a shell has to know to complete our commands, from their manuals."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from . import COMMANDS
from .arguments import STORE_OPTIONS, read, unknown
from .drawing import Pen
from .manuals import STORE, manual_of

OPTIONS: dict[str, str] = {}
"""It has none of its own; those of a store are taken, for an alias that has them, and not used."""
SHELLS = ("bash", "zsh", "fish")
VALUES = {
    "--leftovers": ("wait", "end", "leave"),
    "--role": ("read", "hold", "admin", "metrics"),
}
"""The values of an option, where those are few."""
BEFORE = {**STORE[1], "--help": "what a command does", "--version": "which release this is"}
"""The options that may stand before a command's name."""


def main(words: list[str]) -> int:
    """Prints the script for a shell, and returns the exit status."""
    (shell,) = read(words, STORE_OPTIONS, "SHELL").operands
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    lines = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]()
    Pen(sys.stdout).write("\n".join(lines) + "\n")
    return 0


def options_of(command: str) -> dict[str, str]:
    """Returns the options of a command as they are written, with their meanings."""
    found = {words: text for _, table in manual_of(command).groups for words, text in table.items()}
    return {**found, "--help": "this command's manual"}


def choices_of(command: str) -> tuple[str, ...]:
    """Returns the words that a command takes as its first operand, where those are few."""
    if command == "stores":
        from .stores import promises

        return tuple(one.store for one in promises())
    few = {"completion": SHELLS, "fence": ("check",), "token": ("create", "list", "revoke")}
    return few.get(command, ())


def _values(option: str) -> tuple[str, ...]:
    """Returns the values of an option, where those are few."""
    return VALUES.get(option.split(maxsplit=1)[0], ())


def _first(text: str) -> str:
    """Returns the beginning of a meaning, up to where it goes into details."""
    for end in (";", " (", ", such as"):
        text = text.partition(end)[0]
    return text


def _names(options: dict[str, str], valued: bool | None = None) -> str:
    return " ".join(
        words.split()[0]
        for words in options
        if valued is None or (len(words.split()) > 1) == valued
    )


def _bash() -> Iterator[str]:
    yield "# The completion of holdfast for bash: source it, or put it into"
    yield "# ~/.local/share/bash-completion/completions/holdfast"
    yield "_holdfast() {"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}"
    yield '    local command="" options="" choices="" at word'
    yield "    COMPREPLY=()"
    yield "    for ((at = 1; at < COMP_CWORD; at++)); do"
    yield "        word=${COMP_WORDS[at]}"
    yield "        if [[ $word == -- ]]; then"
    yield "            # The command that is run, and its own words."
    yield "            compopt -o filenames 2> /dev/null"
    yield "            if ((at + 1 == COMP_CWORD)); then"
    yield '                mapfile -t COMPREPLY < <(compgen -c -- "$current")'
    yield "            else"
    yield '                mapfile -t COMPREPLY < <(compgen -f -- "$current")'
    yield "            fi"
    yield "            return"
    yield "        fi"
    yield f"        if [[ -z $command && $word != -* && {_not_a_value()} ]]; then"
    yield "            command=$word"
    yield "        fi"
    yield "    done"
    yield "    case $previous in"
    for option, values in VALUES.items():
        words = " ".join(values)
        yield f"        {option})"
        yield f'            mapfile -t COMPREPLY < <(compgen -W "{words}" -- "$current")'
        yield "            return ;;"
    yield f"        {_valued()})"
    yield "            return ;;"
    yield "    esac"
    yield "    case $command in"
    yield f'        "") options="{_names(BEFORE)}" choices="{" ".join(COMMANDS)}" ;;'
    for command in COMMANDS:
        names, choices = _names(options_of(command)), " ".join(choices_of(command))
        yield f'        {command}) options="{names}" choices="{choices}" ;;'
    yield "    esac"
    yield "    if [[ $current == -* ]]; then"
    yield '        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")'
    yield "    else"
    yield '        mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$current")'
    yield "    fi"
    yield "}"
    yield "complete -F _holdfast holdfast"


def _valued() -> str:
    """Returns a pattern of all options that take a value."""
    names = {
        name for command in COMMANDS for name in _names(options_of(command), valued=True).split()
    }
    return " | ".join(sorted(names - set(VALUES)))


def _not_a_value() -> str:
    """Returns a condition of bash: the word is not the value of an option before the command."""
    names = "|".join(_names(BEFORE, valued=True).split())
    return f"! ${{COMP_WORDS[at - 1]}} =~ ^({names})$"


def _zsh() -> Iterator[str]:
    yield "#compdef holdfast"
    yield "# The completion of holdfast for zsh: put it as _holdfast into a folder of $fpath."
    yield "_holdfast() {"
    yield "    local context state state_descr line"
    yield "    typeset -A opt_args"
    yield "    local -a commands=("
    for command, (_, what) in COMMANDS.items():
        yield f"        {_quoted(f'{command}:{what}')}"
    yield "    )"
    yield f"    _arguments -C {' '.join(_zsh_options(BEFORE))} \\"
    yield "        '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "        command) _describe -t commands command commands ;;"
    yield "        argument)"
    yield "            case $words[1] in"
    for command in COMMANDS:
        runs = "COMMAND" in manual_of(command).synopsis
        rest = "'*:word:_files'" if runs else "'*:word:'"
        choices = choices_of(command)
        if choices:
            rest = f"'*:word:({' '.join(choices)})'"
        yield f"                {command}) _arguments {' '.join(_zsh_options(options_of(command)))} \\"
        yield f"                    {rest} ;;"
    yield "            esac ;;"
    yield "    esac"
    yield "}"
    yield "if [[ $funcstack[1] == _holdfast ]]; then"
    yield '    _holdfast "$@"'
    yield "else"
    yield "    compdef _holdfast holdfast"
    yield "fi"


def _zsh_options(options: dict[str, str]) -> Iterator[str]:
    for words, text in options.items():
        name, *value = words.split()
        meaning = _first(text).replace("[", "(").replace("]", ")").replace(":", "\\:")
        choices = f"({' '.join(_values(name))})" if _values(name) else ""
        shape = f":{value[0]}:{choices}" if value else ""
        yield _quoted(f"{name}[{meaning}]{shape}")


def _fish() -> Iterator[str]:
    yield "# The completion of holdfast for fish: put it into ~/.config/fish/completions/holdfast.fish"
    yield "function __holdfast_after_dashes"
    yield "    # The command that is run, and its own words, as fish completes them by themselves."
    yield "    set -l words (commandline -opc)"
    yield "    set -l at (contains -i -- -- $words); or return"
    yield "    set -e words[1..$at]"
    yield "    set -l line (string escape -- $words | string join ' ')"
    yield '    complete -C (string trim --left -- "$line "(commandline -ct))'
    yield "end"
    yield "complete -c holdfast -f"
    for words, text in BEFORE.items():
        yield _fish_option("__fish_use_subcommand", words, text)
    for command, (_, what) in COMMANDS.items():
        yield f"complete -c holdfast -n __fish_use_subcommand -a {command} -d {_quoted(what)}"
    for command in COMMANDS:
        seen = f"__fish_seen_subcommand_from {command}"
        for words, text in options_of(command).items():
            yield _fish_option(seen, words, text)
        if choices := choices_of(command):
            yield f"complete -c holdfast -n {_quoted(seen)} -a {_quoted(' '.join(choices))}"
    after = "contains -- -- (commandline -opc)"
    yield f"complete -c holdfast -n {_quoted(after)} -k -a '(__holdfast_after_dashes)'"


def _fish_option(condition: str, words: str, text: str) -> str:
    name, *value = words.split()
    flag = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
    choices = f" -a {_quoted(' '.join(_values(name)))}" if _values(name) else ""
    takes = f" -x{choices}" if value else ""
    return f"complete -c holdfast -n {_quoted(condition)} {flag}{takes} -d {_quoted(_first(text))}"


def _quoted(text: str) -> str:
    """Returns `text` in single quotes, as all three shells read them."""
    return "'" + text.replace("'", "'\\''") + "'"
