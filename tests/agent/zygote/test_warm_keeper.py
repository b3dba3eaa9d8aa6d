"""`warm: 10m`: what a run has imported stays, and the next run starts from it, as if it had not."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from oarlock.agent.zygote import adopted_zygote, warm_socket
from oarlock.agent.zygote.orders import KEEPER_MESSAGES, Forked, ForkRequest
from oarlock.screens.event_text import describe
from oarlock.system import fd_frames, private_network
from tests.support import listeners
from tests.support.gangs import STEPS, Gang, is_running, until_gone
from tests.support.soaking import only_in_soak
from tests.support.strangers import as_nobody, needs_root

JAX = "import jax\n"
SAY = JAX + "import os\nprint('said', os.environ.get('SAID'), os.environ['SHLVL'], os.getcwd())"

Start = Callable[..., Gang]


@pytest.fixture
def kept(start: Start, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Runs whose imports stay; at the end nobody does."""
    monkeypatch.setenv("SHLVL", "1")
    pids: set[int] = set()

    def make(program: str, **fields: Any) -> Gang:
        gang = start(program, **{"warm": "1m", "framework": "jax", **fields})
        pids.add(keeper_of(gang))
        return gang

    yield make
    for pid in filter(is_running, pids):
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGTERM)
    until_gone(list(pids))


def keeper_of(gang: Gang) -> int:
    gang.until(lambda gang: gang.of("ready"), "import")
    pid: int = gang.of("ready")[0]["keeper"]
    return pid


def is_adopted(gang: Gang) -> bool:
    return "keep" in gang.of("ready")[0] and "seconds" not in gang.of("ready")[0]


def place_of(keeper: int, home: Path) -> Path:
    """Where it listens, as the kernel knows it."""
    [name] = listeners.unix_of_tree(keeper)
    return home / "warm" / Path(name).name


def ended_well(gang: Gang) -> Gang:
    assert gang.end().state == "succeeded", gang.told()
    return gang


def test_the_next_run_starts_from_what_was_imported(
    kept: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ended_well(kept(SAY))
    monkeypatch.setenv("SHLVL", "2")
    second = ended_well(kept(SAY))
    assert (is_adopted(first), is_adopted(second)) == (False, True)
    assert keeper_of(first) == keeper_of(second)
    assert is_running(keeper_of(first))
    keeper = keeper_of(first)
    assert describe(first.of("ready")[0]).endswith(f"; process {keeper} keeps them for 1m00s after the run")
    assert describe(second.of("ready")[0]) == f"jax, jax.numpy already imported by process {keeper}"
    for gang, level in ((first, 1), (second, 2)):
        assert f"worker-0| said None {level} {tmp_path / 'job'}" in gang.lines
    failed = kept(JAX + "raise SystemExit(3)", limits={"restarts": 0})
    assert failed.end().code == 3
    assert is_adopted(ended_well(kept(SAY))), "a run that fails leaves it, too"


def test_jax_compiles_where_its_own_run_says(kept: Start, home: Path, tmp_path: Path) -> None:
    program = "import jax\nprint('folder', jax.config.jax_compilation_cache_dir)"
    assert f"worker-0| folder {home}/cache/jax" in ended_well(kept(program)).lines
    other = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path / "other")}
    assert f"worker-0| folder {tmp_path}/other" in ended_well(kept(program, env=other)).lines


def test_without_it_nothing_stays(start: Start) -> None:
    gang = ended_well(start(SAY, framework="jax"))
    assert "keeper" not in gang.of("ready")[0]


def test_it_leaves_by_itself(kept: Start) -> None:
    keeper = keeper_of(ended_well(kept(SAY, warm="1s")))
    until_gone([keeper], 30)


@only_in_soak
def test_what_an_import_may_look_at_must_be_the_same(
    kept: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [
        kept(SAY),
        kept(SAY, env={"SAID": "hello"}),
        kept(SAY, roles={"worker": 1}),  # another share of the cores: see defaults.import_time
    ]
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runs.append(kept(SAY))
    assert not any(is_adopted(ended_well(gang)) for gang in runs)
    assert len({keeper_of(gang) for gang in runs}) == len(runs)


def test_an_installed_package_ends_it(kept: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(packages))
    first = ended_well(kept(SAY))
    (packages / "new.py").write_text("")
    second = ended_well(kept(SAY))
    assert not is_adopted(second)
    until_gone([keeper_of(first)])
    assert is_adopted(ended_well(kept(SAY))), "the second one's stays instead"


@only_in_soak  # an installed package ends it, too
def test_an_edited_module_ends_it(kept: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that Python imports by itself stands for the framework's own: editing those would upset others."""
    (tmp_path / "packages").mkdir()
    module = tmp_path / "packages" / "sitecustomize.py"
    module.write_text("VERSION = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(module.parent))
    ended_well(kept(SAY))
    with module.open("a") as file:
        file.write("VERSION = 2\n")
    assert not is_adopted(ended_well(kept(SAY)))


def test_two_runs_at_once_start_from_one(kept: Start) -> None:
    ended_well(kept(SAY))
    both = [kept(JAX + STEPS + "train(10**6)").until_step(3) for _ in range(2)]
    assert all(map(is_adopted, both))
    assert len({keeper_of(gang) for gang in both}) == 1
    tasks = [gang.pid(task) for gang in both for task in ("worker-0", "worker-1")]
    os.kill(both[0].state.agent or 0, signal.SIGKILL)
    until_gone(tasks[:2])
    both[1].until_step((both[1].state.tasks["worker-0"].step or 0) + 5)
    assert all(map(is_running, tasks[2:])), "the other run is no concern of the one whose agent died"
    os.kill(both[1].state.agent or 0, signal.SIGINT)
    both[1].end()
    until_gone(tasks)


def test_a_killed_zygote_takes_all_below_it_along(kept: Start) -> None:
    program = """
import subprocess
if me.generation == 1:
    print("child", subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
train(10**6 if me.generation == 1 else 3)
"""
    ended_well(kept(SAY))
    gang = kept(JAX + STEPS + program).until_step(3)
    gang.until(lambda gang: sum("child" in line for line in gang.lines) == 2, "children")
    children = [int(line.split()[-1]) for line in gang.lines if "child" in line]
    task = gang.pid("worker-0")
    zygote = int(Path(f"/proc/{task}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert zygote != keeper_of(gang)
    os.kill(zygote, signal.SIGKILL)
    state = ended_well(gang).state
    assert state.generation == 2
    until_gone([*children, task, zygote])
    assert is_running(keeper_of(gang)), "who kept the imports is not the one who was killed"


def test_who_does_not_answer_is_not_waited_for(kept: Start) -> None:
    first = ended_well(kept(SAY))
    os.kill(keeper_of(first), signal.SIGSTOP)
    second = ended_well(kept(SAY))
    assert not is_adopted(second)
    os.kill(keeper_of(first), signal.SIGCONT)
    assert is_adopted(ended_well(kept(SAY))), "late, but it is there"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that other users can look into."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
def test_who_answers_must_be_the_same_user(public: Path) -> None:
    place = public / "warm" / "of-a-squatter"
    place.parent.mkdir()
    place.parent.chmod(0o777)
    told, claimed = os.pipe()

    def squat() -> bool:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(place))
            listener.listen()
            os.write(claimed, b"!")
            caller, _ = listener.accept()
            fd_frames.send(caller, KEEPER_MESSAGES.to_data(Forked(os.getpid())))
        return True

    with as_nobody(squat):
        os.close(claimed)
        assert os.read(told, 1) == b"!"
        assert adopted_zygote.adopt(place, "/", {}) is None
    os.close(told)


@needs_root
def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    place = tmp_path / "warm" / "ours-1"
    place.parent.mkdir()
    os.chown(place.parent, 65534, 65534)
    assert warm_socket.claim(place) is None
    assert not list(place.parent.iterdir())


def test_sockets_of_killed_keepers_are_removed(tmp_path: Path) -> None:
    """Its own at once, those of other machines after a day; its folder is closed again."""
    warm = tmp_path / ("long" * 50) / "warm"
    for name in ("ours-1", "theirs-1", "older-1"):
        left = warm_socket.claim(warm / name)
        assert left is not None
        left.close()  # and the path stays, as after a kill
    os.utime(warm / "older-1", (0, 0))
    living = warm_socket.claim(warm / "ours-3")
    assert living is not None
    warm.chmod(0o755)
    again = warm_socket.claim(warm / "ours-1")
    assert again is not None
    assert warm_socket.claim(warm / "ours-3") is None, "its keeper lives"
    assert {path.name for path in warm.iterdir()} == {"ours-1", "ours-3", "theirs-1"}
    assert stat.S_IMODE(warm.stat().st_mode) == 0o700
    living.close()
    again.close()


@needs_root
def test_another_user_gets_no_answer(kept: Start, public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither through the folder nor, were it open, from the keeper."""
    monkeypatch.setenv("OARLOCK_HOME", str(public / "home"))
    place = place_of(keeper_of(ended_well(kept(SAY))), public / "home")

    def ask() -> str:
        with socket.socket(socket.AF_UNIX) as line:
            try:
                line.connect(str(place))
            except PermissionError:
                return "no way"
            with suppress(ConnectionError):
                request = KEEPER_MESSAGES.to_data(ForkRequest("/", {}, "shared"))
                fd_frames.send(line, request, (0, 1, 2))
                return "an answer" if fd_frames.receive(line)[0] else "no answer"
            return "no answer"

    place.chmod(0o777)
    public.joinpath("home").chmod(0o755)
    with as_nobody(lambda: ask() == "no way") as ended:
        assert ended() == 0, "it got as far as the socket"
    place.parent.chmod(0o755)
    with as_nobody(lambda: ask() == "no answer") as ended:
        assert ended() == 0, "it was given a process of ours"


@needs_root
def test_a_container_without_the_folder_gets_no_answer(kept: Start, home: Path) -> None:
    """The same user, in the same network, with another view of the files."""
    keeper = keeper_of(ended_well(kept(SAY)))
    place = place_of(keeper, home)
    ask = (
        "import sys; from pathlib import Path; from oarlock.agent.zygote import adopted_zygote\n"
        "sys.exit(adopted_zygote.adopt(Path(sys.argv[1]), '/', {}) is not None)"
    )
    hidden = 'mount -t tmpfs none "$1" && exec "$2" -c "$3" "$4"'
    words = ["sh", "-c", hidden, "sh", str(home), sys.executable, ask, str(place)]
    assert subprocess.run(["unshare", "-m", *words], check=False, timeout=300).returncode == 0
    abstract = [name for name in listeners.unix_of_tree(keeper) if name.startswith("@")]
    assert not abstract, "which would be seen in every container that shares the network"
    assert is_adopted(ended_well(kept(SAY))), "it does answer who sees the folder"


def test_a_private_network_is_new_for_every_run(kept: Start) -> None:
    if private_network.refusal() is not None:
        pytest.skip("this machine does not allow network: private")
    program = JAX + "import os\nprint('network', os.readlink('/proc/self/ns/net'))"
    first, second = (ended_well(kept(program, network="private")) for _ in range(2))
    assert is_adopted(second)
    others = ended_well(kept(program))
    assert not is_adopted(others)
    networks = {line for gang in (first, second, others) for line in gang.lines if "network" in line}
    assert len({line.split()[-1] for line in networks}) == 3
    assert any(line.endswith(str(Path("/proc/self/ns/net").readlink())) for line in others.lines)
