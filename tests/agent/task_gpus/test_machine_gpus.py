"""What an agent concludes from its GPUs: figures of tasks, and whether memory of the dead is free."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from oarlock.agent.task_gpus.gpu_claim import GpuClaim
from oarlock.agent.task_gpus.machine_gpus import Claimant, MachineGpus
from oarlock.run.gpu_facts.gpu_view import Gpus
from oarlock.system.gpus.gpu_reading import GpuReading
from oarlock.system.gpus.gpu_watch import GpuSource, GpuWatch
from oarlock.system.gpus.kernel_log import KernelLog
from tests.support.waiting import eventually

GIB = 1 << 30


class Driver:
    """Two GPUs with as much memory in use as the test says."""

    def __init__(self) -> None:
        self.memory = [1 * GIB, 1 * GIB]
        self.holders: list[dict[int, int]] = [{}, {}]
        self.uuids = ["GPU-0", "GPU-1"]
        self.total = 140 * GIB
        self.is_shared = True

    def read(self) -> list[GpuReading]:
        return [
            GpuReading(
                str(at),
                "NVIDIA H200",
                self.uuids[at],
                f"0000:0{at}:00",
                used,
                self.total,
                300.0 + at,
                0.5 * at,
                holders,
                self.is_shared,
            )
            for at, (used, holders) in enumerate(zip(self.memory, self.holders))
        ]


class Machine:
    """A machine of which the test awaits looks."""

    def __init__(self, tmp_path: Path, driver: GpuSource | None) -> None:
        self.kernel = tmp_path / "kmsg"
        self.kernel.touch()
        self.watch = GpuWatch(lambda: driver)
        self.gpus = MachineGpus(self.watch, KernelLog(self.kernel), is_user=lambda pid: pid == 7)
        self.gpus.start()

    def launch(self, *given: str, pid: int = 5) -> Claimant:
        return Claimant(self.gpus.claim(Gpus({"worker-0": list(given)}), "worker-0", {}), pid)

    def logs(self, text: str) -> None:
        with self.kernel.open("a") as kernel:
            kernel.write(f"4,1,10,-;{text}\n")

    def trouble(self, claimant: Claimant, words: str) -> str:
        found = self.gpus.trouble(claimant, words)
        return f"{found.kind}: {found.text}" if found else ""

    def figures(self, *claimants: Claimant) -> list[dict[str, Any]] | None:
        self.look()
        return self.gpus.figures(claimants)

    def look(self) -> float:
        now = time.monotonic()
        eventually(lambda: self.watch.has_none or self.watch.newest(now) is not None, "look")
        return now

    def held(self, *dead: Claimant) -> str:
        now = time.monotonic()
        eventually(lambda: self.gpus.held(dead, now) is not None, "answer")
        return self.gpus.held(dead, now) or ""


GIVEN = Claimant(GpuClaim(given=("1",)), 5)
BOTH = Claimant(GpuClaim(given=("0", "1")), 6)
FREE = Claimant(GpuClaim(), 7)  # it sees all GPUs


def test_figures_are_those_of_the_tasks_own_gpus(tmp_path: Path) -> None:
    driver = Driver()
    driver.memory = [3 * GIB, 5 * GIB]
    found = Machine(tmp_path, driver).figures(GIVEN, BOTH, Claimant(GpuClaim(given=()), 8))
    assert found is not None
    one, both, none = found
    assert one == {
        "gpus": ["1"],
        "memory": 5 * GIB,
        "memory_total": 140 * GIB,
        "power": 301.0,
        "utilization": 0.5,
    }
    assert (both["gpus"], both["memory"], both["power"], both["utilization"]) == (
        ["0", "1"],
        8 * GIB,
        601.0,
        0.25,
    )
    assert none == {}


def test_a_task_that_sees_all_has_figures_only_if_it_uses_one(tmp_path: Path) -> None:
    used = Machine(tmp_path, Driver()).figures(FREE, Claimant(GpuClaim(), 8))
    assert used is not None
    assert [told.get("gpus") for told in used] == [["0", "1"], None]


def test_without_gpus_there_is_nothing_to_say_or_to_wait_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path, None)
    assert machine.figures(GIVEN) is None
    assert machine.held(GIVEN) == ""


def test_memory_is_held_as_long_as_the_driver_names_the_dead(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("1")
    driver.holders[1] = {5: 9 * GIB}
    driver.memory[1] = 10 * GIB
    machine.figures(task)
    assert machine.held(task) == "GPU 1 has 10.00 GiB in use"
    driver.holders[1] = {99: 9 * GIB}  # somebody else
    assert machine.held(task) == ""


def test_where_it_names_nobody_the_memory_that_was_in_use_before_decides(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("1")
    driver.memory[1] = 60 * GIB
    machine.figures(task)
    assert machine.held(task) == "GPU 1 has 60.00 GiB in use"
    driver.memory[1] = 1 * GIB + 1000
    assert machine.held(task) == ""


def test_what_is_seen_of_the_dead_does_not_count_as_in_use_before(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("1")
    driver.memory[1] = 60 * GIB
    machine.figures()  # it is being forked
    assert machine.held(task) == "GPU 1 has 60.00 GiB in use"
    machine.figures()  # the driver is freeing it
    assert machine.held(task) == "GPU 1 has 60.00 GiB in use"
    driver.memory[1] = 1 * GIB
    assert machine.held(task) == ""


def test_a_look_that_ended_before_the_first_launch_is_enough_to_know_what_was_in_use(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, driver)
    machine.look()
    task = machine.launch("1")
    driver.memory[1] = 60 * GIB
    machine.figures(task)
    assert machine.held(task) == "GPU 1 has 60.00 GiB in use"


def test_without_one_the_looks_after_a_death_show_it(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, None)
    machine.watch = GpuWatch(lambda: driver)
    machine.gpus = MachineGpus(machine.watch, KernelLog(machine.kernel))
    task = machine.launch("1")
    machine.gpus.start()
    driver.memory[1] = 60 * GIB
    machine.figures(task)
    driver.memory[1] = 1 * GIB
    assert machine.held(task) == ""
    task = machine.launch("1")
    driver.memory[1] = 60 * GIB
    assert machine.held(task) == "GPU 1 has 60.00 GiB in use"


def test_looks_at_a_task_that_runs_do_not_count(tmp_path: Path) -> None:
    driver = Driver()
    driver.memory[1] = 31 * GIB
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("1")
    driver.memory[1] = 2 * GIB  # somebody else paused
    machine.figures(task)
    driver.memory[1] = 31 * GIB
    assert machine.held(task) == ""


def test_gpus_without_a_uuid_are_told_apart_by_their_address(tmp_path: Path) -> None:
    driver = Driver()
    driver.uuids = ["", ""]  # of AMD's, some have none
    driver.memory = [50 * GIB, 1 * GIB]
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("0", "1")
    assert machine.held(task) == ""
    driver.memory = [60 * GIB, 60 * GIB]
    assert machine.held(task) == "GPU 0 has 60.00 GiB in use, GPU 1 has 60.00 GiB in use"


def test_what_others_have_freed_meanwhile_does_not_hide_memory_of_the_dead(tmp_path: Path) -> None:
    driver = Driver()
    driver.memory[1] = 31 * GIB
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("1")
    driver.memory[1] = 1 * GIB
    assert machine.held(task) == ""
    task = machine.launch("1")
    driver.memory[1] = 20 * GIB
    assert machine.held(task) == "GPU 1 has 20.00 GiB in use"


def test_a_process_that_stands_by_is_not_taken_for_the_dead(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, driver)
    machine.figures()  # nothing runs yet
    task = machine.launch("1")
    driver.memory[1] = 60 * GIB
    machine.figures(task)
    driver.memory[1] = 1 * GIB + GIB // 2  # of which the new context has half a gigabyte
    assert machine.held(task._replace(is_followed=True)) == ""
    assert machine.held(task) == "GPU 1 has 1.50 GiB in use"


def test_the_room_of_a_task_is_that_of_its_fullest_gpu(tmp_path: Path) -> None:
    driver = Driver()
    driver.memory = [10 * GIB, 100 * GIB]
    machine = Machine(tmp_path, driver)
    machine.look()
    assert machine.gpus.room(BOTH) == 40 * GIB
    assert machine.gpus.room(Claimant(GpuClaim(given=("0",)), 8)) == 130 * GIB
    assert machine.gpus.room(Claimant(GpuClaim(given=()), 8)) == 0


def test_a_small_gpu_has_no_room_beside_a_task(tmp_path: Path) -> None:
    driver = Driver()
    driver.total = 40 * GIB
    machine = Machine(tmp_path, driver)
    machine.look()
    assert machine.gpus.room(BOTH) == 0


def test_a_gpu_for_one_process_at_a_time_has_no_room(tmp_path: Path) -> None:
    driver = Driver()
    driver.is_shared = False
    machine = Machine(tmp_path, driver)
    machine.look()
    assert machine.gpus.room(BOTH) == 0


def test_what_never_used_a_gpu_holds_none(tmp_path: Path) -> None:
    driver = Driver()
    machine = Machine(tmp_path, driver)
    machine.figures()
    machine.figures(Claimant(GpuClaim(), 8))
    driver.memory[0] = 60 * GIB  # of somebody else
    assert machine.held(Claimant(GpuClaim(), 8)) == ""


ECC = "NVRM: Xid (PCI:0000:01:00): 94, pid=5, name=python, Contained ECC error"
FULL = "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."


def test_what_the_kernel_logged_about_a_gpu_explains_no_later_failure_on_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Driver())
    machine.look()
    first = machine.launch("1")
    machine.logs(ECC)
    assert "(Xid 94)" in machine.trouble(first, "")
    second = machine.launch("1", pid=6)
    assert machine.trouble(second, "ValueError: no such column") == ""
    assert machine.trouble(second, "") == ""
    assert machine.trouble(second, FULL).startswith("memory: GPU 1 (NVIDIA H200) ran out of memory")
    machine.logs(ECC.replace("94", "48"))
    assert "(Xid 48)" in machine.trouble(second, "")


def test_nor_do_lines_that_were_there_at_its_launch_although_nobody_had_read_them(tmp_path: Path) -> None:
    machine = Machine(tmp_path, Driver())
    machine.look()
    machine.logs(ECC)
    assert machine.trouble(machine.launch("1"), "ValueError: no such column") == ""
