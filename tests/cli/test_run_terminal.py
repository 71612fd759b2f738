"""On a terminal: who reads it, where Ctrl-C and Ctrl-Z go, and what a shell sees of it all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from cli.screen import Screen
from cli.stage import HOLDFAST, Stage, eventually, foreground, is_stopped, lives, parent

CTRL_C, CTRL_D, CTRL_Z = "\x03", "\x04", "\x1a"
RUN = f"{sys.executable} -m holdfast run x"


@pytest.fixture
def screen(stage: Stage) -> Iterator[Callable[..., Screen]]:
    screens: list[Screen] = []

    def make(*command: str) -> Screen:
        screens.append(Screen(stage, *command))
        return screens[-1]

    try:
        yield make
    finally:
        for one in screens:
            one.close()


@pytest.fixture
def shell(stage: Stage, screen: Callable[..., Screen]) -> Screen:
    """A shell with job control, as a person has it before him."""
    shell = screen("bash", "--norc", "--noprofile", "-i")
    shell.expect("$ ")
    return shell


def test_the_command_reads_the_terminal(screen: Callable[..., Screen]) -> None:
    """The command may ask before it was lent the terminal; that must not stop it."""
    one = screen(*HOLDFAST, "run", "x", "--", "sh", "-c", 'read a; echo "got <$a>"; exit 4')
    one.line("hello")
    one.expect("got <hello>")
    assert one.ended() == 4


def test_the_command_is_in_the_foreground(screen: Callable[..., Screen]) -> None:
    code = "import os, time\nwhile os.tcgetpgrp(0) != os.getpgrp(): time.sleep(0.01)\nprint('lent')"
    one = screen(*HOLDFAST, "run", "x", "--", sys.executable, "-c", code)
    one.expect("lent")
    assert one.ended() == 0


def test_ctrl_c_reaches_the_command(stage: Stage, screen: Callable[..., Screen]) -> None:
    one = screen(*HOLDFAST, "run", "x", "--", "sh", "-c", "echo $$ > child.pid; exec sleep 60")
    child = stage.pid()
    one.type(CTRL_C)
    assert one.ended() == 130
    assert not lives(child)
    assert stage.free()


def test_a_command_that_handles_ctrl_c_goes_on(stage: Stage, screen: Callable[..., Screen]) -> None:
    script = "trap 'echo handled; exit 5' INT; echo $$ > child.pid; while :; do sleep 0.01; done"
    one = screen(*HOLDFAST, "run", "x", "--", "sh", "-c", script)
    stage.pid()
    one.type(CTRL_C)
    one.expect("handled")
    assert one.ended() == 5


def test_ctrl_c_while_waiting(stage: Stage, screen: Callable[..., Screen]) -> None:
    with stage.locks.lock("x", ttl=60):
        one = screen(*HOLDFAST, "run", "x", "--", "touch", "ran")
        one.expect("holdfast: waiting for 'x', held by")
        one.type(CTRL_C)
        assert one.ended() == 130
        assert stage.locks.inspect("x").waiters == ()
    assert not (stage.folder / "ran").exists()


def test_ctrl_c_in_a_shell(stage: Stage, shell: Screen) -> None:
    shell.line(f"{RUN} -- sh -c 'echo $$ > child.pid; exec sleep 60'")
    child = stage.pid()
    shell.type(CTRL_C)
    shell.line('echo "status <$?>"')
    shell.expect("status <130>")
    assert not lives(child)


def test_ctrl_c_ends_a_loop_of_the_shell(stage: Stage, shell: Screen) -> None:
    """As it would without us: the shell has to see that Ctrl-C ended the command."""
    shell.line(f"for i in 1 2; do {RUN} -- sh -c 'echo $$ >> child.pid; exec sleep 60'; done")
    stage.pid()
    shell.type(CTRL_C)
    shell.line('echo "status <$?>"')
    shell.expect("status <130>")
    assert len((stage.folder / "child.pid").read_text().splitlines()) == 1


def test_ctrl_c_ends_a_script(stage: Stage, shell: Screen) -> None:
    (stage.folder / "script").write_text(
        f"{RUN} -- sh -c 'echo $$ > child.pid; exec sleep 60'\ntouch went-on\n"
    )
    shell.line("bash script")
    stage.pid()
    shell.type(CTRL_C)
    shell.line('echo "status <$?>"')
    shell.expect("status <130>")
    assert not (stage.folder / "went-on").exists()


def test_ctrl_z_and_fg(stage: Stage, shell: Screen) -> None:
    shell.line(f"{RUN} -- sh -c '{stage.turnstile()}; echo end; exit 6'")
    child = stage.pid()
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    assert is_stopped(child)
    assert not stage.free()
    shell.line("fg")
    eventually(lambda: not is_stopped(child))
    stage.turn()
    shell.expect("end")
    shell.line('echo "status <$?>"')
    shell.expect("status <6>")


def test_ctrl_z_and_bg_and_fg(stage: Stage, shell: Screen) -> None:
    shell.line(f"{RUN} -- sh -c '{stage.turnstile()}; read a; echo read-$a'")
    child = stage.pid()
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    shell.line("bg")
    eventually(lambda: not is_stopped(child))
    stage.turn()
    eventually(lambda: is_stopped(parent(child)), "it wants to read, and may not")
    assert is_stopped(child)
    shell.line("")
    shell.expect("Stopped")
    shell.line("fg")
    eventually(lambda: not is_stopped(child))
    shell.line("hello")
    shell.expect("read-hello")
    shell.line('echo "status <$?>"')
    shell.expect("status <0>")


def test_a_lease_that_ended_while_stopped(stage: Stage, shell: Screen) -> None:
    """On fg the command is not continued: somebody else may have the lock."""
    (stage.folder / "child.py").write_text(
        "import os, signal\n"
        "signal.signal(signal.SIGCONT, lambda number, frame: open('ran-on', 'w'))\n"
        "open('child.pid', 'w').write(f'{os.getpid()}\\n')\n"
        "while True: signal.pause()\n"
    )
    shell.line(f"{RUN} --ttl 3s -- {sys.executable} child.py")
    child = stage.pid()
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    with stage.locks.lock("x", timeout=20):
        assert is_stopped(child)
        shell.line("fg")
        shell.expect("is lost")
        assert not lives(child)
        shell.line('echo "status <$?>"')
        shell.expect("status <76>")
    assert not (stage.folder / "ran-on").exists()


def test_started_in_the_background_it_does_not_take_the_terminal(
    stage: Stage, shell: Screen
) -> None:
    shell.line(f"{RUN} -- sh -c 'echo $$ > child.pid; read a; echo read-$a' &")
    child = stage.pid()
    eventually(lambda: is_stopped(parent(child)), "it wants to read, and may not")
    assert is_stopped(child)
    # Until the shell has heard that all our threads are stopped, its `fg` continues nobody.
    shell.line("until jobs -s | grep -q holdfast; do sleep 0.1; done; echo the shell re''ads")
    shell.expect("the shell reads")
    shell.line("fg")
    eventually(lambda: not is_stopped(child))
    shell.line("hello")
    shell.expect("read-hello")


def test_in_a_pipeline_others_need_the_terminal_too(stage: Stage, shell: Screen) -> None:
    """As with `holdfast run … | less`: it is not taken away from them."""
    reader = "cat > /dev/null; read b < /dev/tty; echo other-$b"
    shell.line(f"{RUN} -- echo hello | sh -c '{reader}'")
    shell.line("keys")
    shell.expect("other-keys")


def test_in_a_pipeline_the_command_is_lent_the_terminal_when_it_asks(
    stage: Stage, shell: Screen
) -> None:
    shell.line(f"{RUN} -- sh -c 'read a; echo mine-$a' | cat")
    shell.line("keys")
    shell.expect("mine-keys")
    shell.line("read c; echo shell-$c")
    shell.line("again")
    shell.expect("shell-again")


def test_ctrl_c_and_ctrl_z_in_a_pipeline(stage: Stage, shell: Screen) -> None:
    """Ours gets them there, and passes them on."""
    shell.line(f"{RUN} -- sh -c 'echo $$ > child.pid; exec sleep 60' | cat")
    child = stage.pid()
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    eventually(lambda: is_stopped(child))
    shell.line("fg")
    eventually(lambda: not is_stopped(child))
    shell.type(CTRL_C)
    shell.line("echo prompt")
    shell.expect("prompt\r\nprompt")
    eventually(lambda: not lives(child))


def test_a_script_goes_on_reading_after_the_command(stage: Stage, shell: Screen) -> None:
    (stage.folder / "script").write_text(
        f"{RUN} -- sh -c 'read a; echo mine-$a'\nread b; echo script-$b\n"
    )
    shell.line("bash script")
    shell.line("one")
    shell.expect("mine-one")
    shell.line("two")
    shell.expect("script-two")


def test_modes_are_put_back_after_a_command_that_had_to_be_killed(
    stage: Stage, shell: Screen
) -> None:
    (stage.folder / "child.sh").write_text(
        "stty -echo -icanon; trap '' TERM; echo $$ > child.pid; while :; do sleep 0.02; done"
    )
    shell.line(f"{RUN} --ttl 3s --grace 50ms -- sh child.sh")
    stage.pid()
    stage.locks.force_release("x")
    shell.expect("is lost")
    shell.line("stty -a | tr ' ' '\\n' | grep -x -e -icanon -e icanon")
    shell.expect("\nicanon")


def test_where_nobody_could_continue_it_ctrl_z_does_nothing(
    stage: Stage, screen: Callable[..., Screen]
) -> None:
    """As the leader of its session, for example in a new window: stopped, it would stay so."""
    script = f"{stage.turnstile()}; exit 8"
    one = screen(*HOLDFAST, "run", "x", "--", "sh", "-c", script)
    child = stage.pid()
    one.type(CTRL_Z)
    one.expect("^Z")
    stage.turn()
    assert one.ended() == 8
    assert not lives(child)


def test_interactive_shells_work_inside(stage: Stage, shell: Screen) -> None:
    shell.line(f"PS1='inner> ' {RUN} -- bash --norc --noprofile")
    shell.expect("inner> ")
    shell.line("sleep 60")
    shell.expect("sleep 60\r\n")
    eventually(lambda: foreground_command(shell) == "sleep")
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    shell.line("fg")
    eventually(lambda: foreground_command(shell) == "sleep")
    shell.type(CTRL_C)
    shell.expect("inner> ")
    shell.line("exit 9")
    shell.expect("$ ")
    shell.line('echo "status <$?>"')
    shell.expect("status <9>")


COUNT_INT = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGINT, lambda *_: open('told', 'a').write('told\\n'))\n"
    "open('child.pid', 'w').write(f'{os.getpid()}\\n')\n"
    "while not os.path.exists('done'): time.sleep(0.01)\n"
)
NESTED = f"{RUN} -- {sys.executable} -m holdfast run y"


@pytest.mark.parametrize("tail", ["", " | cat", " < /dev/null"])
def test_nested_ctrl_c_is_heard_once(stage: Stage, shell: Screen, tail: str) -> None:
    (stage.folder / "child.py").write_text(COUNT_INT)
    shell.line(f"{NESTED} -- {sys.executable} child.py{tail}")
    stage.pid()
    shell.type(CTRL_C)
    stage.wrote("told")
    (stage.folder / "done").touch()
    shell.line("echo prompt")
    shell.expect("prompt\r\nprompt")
    assert stage.wrote("told") == "told\n"


def test_nested_ctrl_z_and_fg(stage: Stage, shell: Screen) -> None:
    shell.line(f"{NESTED} -- sh -c '{stage.turnstile()}; read a; echo read-$a; exit 6'")
    child = stage.pid()
    shell.type(CTRL_Z)
    shell.expect("Stopped")
    assert is_stopped(child)
    shell.line("fg")
    eventually(lambda: not is_stopped(child))
    stage.turn()
    shell.line("hello")
    shell.expect("read-hello")
    shell.line('echo "status <$?>"')
    shell.expect("status <6>")


def test_nested_in_a_pipeline_the_command_is_lent_the_terminal_when_it_asks(
    stage: Stage, shell: Screen
) -> None:
    shell.line(f"{NESTED} -- sh -c 'read a; echo mine-$a' | cat")
    shell.line("keys")
    shell.expect("mine-keys")
    shell.line("read c; echo shell-$c")
    shell.line("again")
    shell.expect("shell-again")


def test_ctrl_c_ends_leftovers(stage: Stage, shell: Screen) -> None:
    left = 'sh -c "echo \\$\\$ > left.pid; exec sleep 60" >/dev/null 2>&1'
    shell.line(f"{RUN} -- sh -c '{left} &'")
    pid = stage.pid("left")
    shell.expect("is held until what it left running has ended too")
    shell.type(CTRL_Z)  # it cannot be stopped: nobody would renew
    shell.type(CTRL_C)
    shell.line('echo "status <$?>"')
    shell.expect("status <0>")
    assert not lives(pid)
    assert stage.free()


def foreground_command(screen: Screen) -> str:
    """The name of the program that has the terminal of that shell."""
    try:
        with open(f"/proc/{foreground(screen.process.pid)}/comm") as file:
            return file.read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
