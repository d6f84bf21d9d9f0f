"""The child process for what comes from elsewhere: bounded, warm, and gone with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from kinds import in_full
from peak_memory import environment, measured
from waiting import LIMIT_S

from benchmarks.sections.untrusted import ATTACKS
from edgedec._support.child import last_line, signal_name
from edgedec._support.sandbox import Limits, Refused, Sandbox, Stopped, ask_once
from edgedec.text.chat import LIMITS

SMALL = Limits(memory_bytes=100 << 20, cpu_s=0.5, wall_s=20.0, answer_bytes=1 << 20)
POSIX = pytest.mark.skipif(os.name != "posix", reason="bounds as POSIX systems keep them")
MODULE = """
import os, sys, time
from edgedec._support import _sandbox_child
from edgedec._support._sandbox_child import Refusal
from edgedec.errors import RuntimeUnavailable

def handle(task):
    if task == "pid":
        return os.getpid()
    if task == "spin":
        while True:
            pass
    if task == "sleep":
        time.sleep(60)
    if isinstance(task, dict) and "begun" in task:
        open(task["begun"], "x").close()
        time.sleep(60)
    if task == "grow":
        return len(bytes(1 << 30))
    if task == "crash":
        sys.stderr.write("assertion failed\\n")
        sys.stderr.flush()
        os.abort()
    if task == "report":
        _sandbox_child.report({"step": 0})
        # Two lines that the parent reads at once.
        _sandbox_child._answers.write(b'{"report": {"step": 1}}\\n{"report": {"step": 2}}\\n')
        return "done"
    if task == "report and crash":
        _sandbox_child.report("half")
        os.abort()
    if task == "long":
        return "x" * (2 << 20)
    if task == "refuse":
        raise Refusal("kind", "not\\nthis")
    if task == "raise":
        raise ZeroDivisionError("by nothing")
    if task == "unavailable":
        raise RuntimeUnavailable("no such device")
    if isinstance(task, dict) and "until" in task:
        while not os.path.exists(task["until"]):
            time.sleep(0.01)
        return os.environ["OF_ITS_OWN"]
    if task == "print":
        print("what a library prints")
    return task

if __name__ == "__main__":
    _sandbox_child.serve(handle)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "some_child.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    made = Sandbox("some_child", idle_s=60)
    yield made
    made.close()


def test_one_child_does_task_after_task(child: Sandbox) -> None:
    assert child.ask("pid", SMALL) == child.ask("pid", SMALL)
    assert child.ask({"a": ["é\n", None]}, SMALL) == {"a": ["é\n", None]}
    assert child.ask("print", SMALL) == "print"


def test_a_child_reports_before_it_answers_or_ends(child: Sandbox) -> None:
    reports: list[Any] = []
    assert child.ask("report", SMALL, on_report=reports.append) == "done"
    assert reports == [{"step": 0}, {"step": 1}, {"step": 2}]
    with pytest.raises(Stopped, match="SIGABRT"):
        child.ask("report and crash", SMALL, on_report=reports.append)
    assert reports[3:] == ["half"]
    assert child.ask("report", SMALL) == "done"


@POSIX
@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("spin", "it took more than 0.5 s of processor time"),
        ("grow", "it needs more than 100 MiB of memory"),
        ("crash", "it crashed with SIGABRT: assertion failed"),
        ("long", "its answer is longer than 1 MiB"),
    ],
)
def test_a_bound_ends_the_task_and_the_next_one_is_done(
    child: Sandbox, task: Any, reason: str
) -> None:
    if task == "grow" and not sys.platform.startswith("linux"):
        pytest.skip("only Linux obeys RLIMIT_AS")
    first = child.ask("pid", SMALL)
    with pytest.raises(Stopped, match=f"^{reason}$"):
        child.ask(task, SMALL)
    assert child.ask("pid", SMALL) != first


def test_elapsed_time_is_bounded(child: Sandbox) -> None:
    child.ask("pid", SMALL)
    with pytest.raises(Stopped, match=r"it took longer than 0\.3 s"):
        child.ask("sleep", Limits(100 << 20, 5.0, 0.3, 1 << 20))


@POSIX
def test_processor_time_is_counted_for_each_task(child: Sandbox) -> None:
    """Many tasks of one child may take more together than one of them may."""
    limits = Limits(100 << 20, 0.2, 20.0, 1 << 20)
    pid = child.ask("pid", limits)
    begin = time.process_time()
    while time.process_time() - begin < 0.5:
        assert child.ask("pid", limits) == pid


def test_a_refusal_leaves_the_child_as_it_is(child: Sandbox) -> None:
    pid = child.ask("pid", SMALL)
    with pytest.raises(Refused, match=r"^not this$") as refused:
        child.ask("refuse", SMALL)
    assert refused.value.kind == "kind"
    assert child.ask("pid", SMALL) == pid


def test_an_exception_ends_the_child_and_a_refusal_of_ours_does_not(child: Sandbox) -> None:
    pid = child.ask("pid", SMALL)
    with pytest.raises(Refused, match=r"^no such device$") as refused:
        child.ask("unavailable", SMALL)
    assert refused.value.kind == "RuntimeUnavailable"
    assert child.ask("pid", SMALL) == pid
    with pytest.raises(Stopped, match=r"^ZeroDivisionError: by nothing$"):
        child.ask("raise", SMALL)
    assert child.ask("pid", SMALL) != pid


def test_one_task_without_bounds_on_memory_and_processor(child: Sandbox, tmp_path: Path) -> None:
    """As models are measured and files quantised: the caller hears that it is waited for."""
    heard: list[bool] = []
    enough = tmp_path / "enough"

    def hear() -> None:
        heard.append(True)
        if len(heard) == 2:
            enough.touch()

    answer = ask_once(
        "some_child",
        {"until": str(enough)},
        Limits(memory_bytes=None, cpu_s=None, wall_s=60.0),
        environment={"OF_ITS_OWN": "value"},
        on_wait=hear,
    )
    assert answer == "value"
    assert len(heard) > 1


def test_who_waits_may_end_it(child: Sandbox) -> None:
    child.ask("pid", SMALL)
    assert child._child is not None
    process = child._child._process

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        child.ask("sleep", SMALL, on_wait=interrupt)
    assert process.poll() is not None


def test_an_idle_child_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_child.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    child = Sandbox("some_child", idle_s=0.1)
    pid = child.ask("pid", SMALL)
    for _ in range(200):
        if child._child is not None and child._child._process.poll() is not None:
            break
        time.sleep(0.05)
    assert child.ask("pid", SMALL) != pid
    child.close()


@POSIX
def test_without_a_folder_for_temporary_files(
    child: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr("tempfile.TemporaryFile", none)
    assert child.ask({"a": 1}, SMALL) == {"a": 1}
    with pytest.raises(Stopped, match=r"^it crashed with SIGABRT: it gave no reason$"):
        child.ask("crash", SMALL)


def test_no_process_can_be_started(child: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Stopped, match=r"^no process for it can be started: No such file"):
        child.ask("pid", SMALL)


def test_threads_take_turns(child: Sandbox) -> None:
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, child.ask(n, SMALL))))
        for n in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(n, n) for n in range(20)]


@POSIX
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_process_starts_its_own(child: Sandbox) -> None:
    mine = child.ask("pid", SMALL)
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            os.write(writing, str(child.ask("pid", SMALL)).encode())
            child.close()
        finally:
            os._exit(0)
    os.close(writing)
    os.wait()
    theirs = int(os.read(reading, 64))
    os.close(reading)
    assert theirs != mine
    assert child.ask("pid", SMALL) == mine


@POSIX
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_process_forked_during_a_task_does_its_own(child: Sandbox) -> None:
    """A thread that the fork does not have held the lock."""
    child.ask("pid", SMALL)

    def spin() -> None:
        with pytest.raises(Stopped):
            child.ask("spin", SMALL)

    task = threading.Thread(target=spin)
    task.start()
    while not child._lock.locked():
        time.sleep(0.01)
    forked = os.fork()
    if forked == 0:
        signal.alarm(20)
        try:
            right = child.ask("mine", SMALL) == "mine"
            child.close()
            os._exit(0 if right else 1)
        finally:
            os._exit(2)
    assert os.waitpid(forked, 0)[1] == 0
    task.join()


@POSIX
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_fork_keeps_no_child_of_its_parent_alive(child: Sandbox) -> None:
    child.ask("pid", SMALL)
    opened = child._child
    assert opened is not None
    assert opened._process.stdin is not None
    pipe = os.fstat(opened._process.stdin.fileno()).st_ino
    forked = os.fork()
    if forked == 0:
        os._exit(sum(is_pipe(number, pipe) for number in range(256)))
    assert os.waitpid(forked, 0)[1] == 0
    assert sum(is_pipe(number, pipe) for number in range(256)) == 1


def is_pipe(descriptor: int, inode: int) -> bool:
    try:
        return os.fstat(descriptor).st_ino == inode
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_an_idle_child_that_ended_leaves_no_zombie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_child.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    child = Sandbox("some_child", idle_s=0.1)
    stat = Path(f"/proc/{child.ask('pid', SMALL)}/stat")
    for _ in range(200):
        if not stat.exists():
            break
        time.sleep(0.05)
    assert not stat.exists()
    child.close()


def test_no_thread_can_be_started(child: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", none)
        with pytest.raises(Stopped, match=r"^no process for it can be started: "):
            child.ask("pid", SMALL)
    assert child.ask("again", SMALL) == "again"


def script(source: str, *arguments: str) -> subprocess.Popen[bytes]:
    (folder := Path(arguments[0])).joinpath("script.py").write_text(textwrap.dedent(source))
    (folder / "some_child.py").write_text(MODULE)
    paths = os.pathsep.join([str(folder), *sys.path])
    return subprocess.Popen(
        [sys.executable, str(folder / "script.py"), *arguments[1:]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


ASKING = """
    import sys
    from edgedec._support.sandbox import Sandbox, Limits
    child = Sandbox("some_child", idle_s=60)
    limits = Limits(100 << 20, 60.0, 120.0, 1 << 20)
    print(child.ask("pid", limits), flush=True)
    try:
        child.ask("spin", limits)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def gone(pid: int) -> bool:
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ctrl_c_ends_at_once_and_a_child_never_outlives_its_parent(
    tmp_path: Path, ending: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    process = script(ASKING.replace('"spin"', repr({"begun": str(begun)})), str(tmp_path))
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    while not begun.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(ending)
    try:
        output, said = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    if ending == signal.SIGINT:
        assert (output, said) == (b"interrupted\n", b"")
    assert gone(pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_a_killed_parent_takes_its_idle_child_along(tmp_path: Path) -> None:
    process = script(ASKING.replace('child.ask("spin", limits)', "sys.stdin.read()"), str(tmp_path))
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=LIMIT_S)
    assert gone(pid)


def test_nothing_is_imported_or_started_before_a_template_is_rendered() -> None:
    code = (
        "import sys; import edgedec.text.chat as c; t = c.ChatTemplate('x'); "
        "assert c._CHILD._child is None and 'jinja2' not in sys.modules; "
        "t.render([{'role': 'user', 'content': ''}]); assert 'jinja2' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


def test_the_child_imports_jinja_and_little_else() -> None:
    code = (
        "import runpy, sys; from edgedec.text import _template_child; "
        "print([n for n in sys.modules if n.split('.')[0] in "
        "('numpy', 'onnxruntime', 'tokenizers', 'click', 'rich')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, env=environment()
    )
    assert found.stdout == b"[]\n"


RENDERED = """
from edgedec.text import chat
close = chat._CHILD.close
def work(source):
    return chat.ChatTemplate(source).render([{"role": "user", "content": "Hi"}])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
@pytest.mark.parametrize("name", in_full(ATTACKS, 3))
def test_an_attack_is_an_error_of_one_line(name: str) -> None:
    said, peak, seconds = measured(RENDERED, ATTACKS[name])
    assert said.startswith("BundleError: the chat template was stopped: it ")
    assert "\n" not in said
    assert peak <= 300e6
    assert seconds <= 2


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux obeys RLIMIT_AS")
def test_a_harmless_template_of_the_same_kind_passes() -> None:
    """The control: what is measured is not what every template takes or says."""
    said, peak, seconds = measured(RENDERED, '{{ "{:>9}".format("x") }}')
    assert said == "        x"
    assert peak < LIMITS.memory_bytes
    assert seconds < 2


def test_signals_have_names() -> None:
    assert signal_name(11) == "SIGSEGV"
    assert signal_name(9999) == "signal 9999"
    assert last_line(b"a\n\x1b[31mb\n\n") == "?[31mb"
    assert last_line(b"") == "it gave no reason"
