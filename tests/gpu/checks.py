"""What only a real GPU can show, as plain functions: each prints what it found, and raises where it is wrong.

    PYTHONPATH=src:. python3 -m tests.gpu.checks

needs NVIDIA's driver, torch with CUDA and, for one of them, JAX; nothing else, not even pytest. The agent
runs the programs as in a pod: with the standard library alone.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.run.gpu_facts.gpu_peaks import peak_of
from oarlock.system.gpus import nvml
from oarlock.system.gpus.gpu_watch import is_used_by
from oarlock.system.gpus.kernel_log import KernelLog
from oarlock.system.polling import wait_for
from tests.gpu import gpu_programs

GIB = 1 << 30
PATIENCE = 300.0
EXAMPLES = Path(__file__).parents[2] / "examples"
Check = Callable[[Path], str]


class NotCheckedError(Exception):
    """This machine lacks what a check needs: it has neither passed nor failed."""


def the_library_says_what_nvidia_smi_says(folder: Path) -> str:
    """Every GPU's number, name, UUID, place and memory."""
    fields = "index,name,uuid,pci.bus_id,memory.total,memory.used,power.draw"
    asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    rows = subprocess.run(
        asked, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout.splitlines()
    found = _library().read()
    assert len(found) == len(rows), (found, rows)
    for gpu, row in zip(found, rows):
        number, name, uuid, bus, total, used, power = (part.strip() for part in row.split(","))
        assert (gpu.number, gpu.name, gpu.uuid) == (number, name, uuid), (gpu, row)
        assert gpu.bus == bus[4:].lower().rpartition(".")[0], (gpu.bus, bus)
        assert abs(gpu.memory_total - int(total) * 2**20) < GIB, (gpu.memory_total, total)
        assert abs(gpu.memory - int(used) * 2**20) < GIB, (gpu.memory, used)
        assert gpu.power is None or abs(gpu.power - float(power)) < 200, (gpu.power, power)
    return f"{found[0]}; peak {peak_of(found[0].name)}"


def memory_of_a_killed_process_is_seen_to_be_freed(folder: Path) -> str:
    """The agent waits for that before it starts the next generation."""
    library = _library()
    before = library.read()[0].memory
    holder = subprocess.Popen(
        [sys.executable, "-c", gpu_programs.HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"holds\n"
        held = library.read()[0]
        assert held.memory - before > 8 * GIB, (held.memory, before)
        assert is_used_by(holder.pid), "its open files do not show that it uses a GPU"
    finally:
        holder.kill()
        holder.wait()
    began = time.monotonic()
    wait_for(lambda: library.read()[0].memory - before < GIB // 4, "freed memory", PATIENCE)
    named = "names" if holder.pid in held.holders else f"does not name (it says {held.holders})"
    return (
        f"the driver {named} the process; its memory is free {time.monotonic() - began:.3f} s after it died"
    )


def mfu_and_figures_are_reported(folder: Path) -> str:
    """A product of matrices reaches most of the peak."""
    return _has_figures(_run(folder, gpu_programs.MULTIPLIES))


def mfu_and_figures_are_reported_for_jax(folder: Path) -> str:
    """The same: JAX names its devices in another way."""
    return _has_figures(_run(folder, gpu_programs.MULTIPLIES_JAX))


def _has_figures(events: list[dict[str, Any]]) -> str:
    shares = [event["mfu"] for event in events if event["kind"] == "report" and "mfu" in event]
    figures = [event for event in events if event["kind"] == "gpu"]
    assert shares, "no MFU"
    assert 0.4 < shares[-1] < 1.0, shares
    assert figures, "no figures of the GPU"
    assert max(event["utilization"] for event in figures) > 0.5, figures
    assert max(event["power"] for event in figures) > 150, figures
    return f"MFU {shares[0]} ... {shares[-1]}; {figures[-1]}"


def torch_runs_out_of_memory(folder: Path) -> str:
    """One more try, then the end, with the GPU and what to do."""
    return _is_out_of_memory(_run(folder, gpu_programs.FILLS))


def jax_runs_out_of_memory(folder: Path) -> str:
    """The same for JAX, whose message names no GPU."""
    return _is_out_of_memory(_run(folder, gpu_programs.FILLS_JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false"))


def a_restarted_task_finds_the_memory_free(folder: Path) -> str:
    """Four generations with 80 % of the memory each, three of them killed with it."""
    events = _run(folder, gpu_programs.KILLS_ITSELF)
    assert events[-1]["state"] == "succeeded", events[-1]
    ended = [event["t"] for event in events if event["kind"] == "task" and event["state"] == "ended"]
    again = [event["t"] for event in events if event["kind"] == "task" and event["state"] == "started"][1:]
    pauses = [f"{start - end:.3f}" for end, start in zip(ended, again)]
    notes = [event["text"] for event in events if event["kind"] == "note"]
    return f"seconds from death to the next fork: {', '.join(pauses)}; notes: {notes}"


def an_assertion_on_the_device_is_named(folder: Path) -> str:
    """An index that is out of range."""
    reason = str(_run(folder, gpu_programs.ASSERTS)[-1].get("reason"))
    assert "a kernel's assertion failed" in reason, reason
    assert reason.startswith("GPU 0 ("), reason
    return reason


def the_kernel_log_is_read_or_is_not(folder: Path) -> str:
    """Nothing is required here: most containers hide it."""
    readable = os.access("/dev/kmsg", os.R_OK)
    return f"/dev/kmsg {'can' if readable else 'cannot'} be read; about GPUs: {KernelLog().about_gpus()[-3:]}"


def a_checkpoint_is_the_state_of_its_moment(folder: Path) -> str:
    """With a copy on the GPU, and where there is no room for one."""
    for spare in ("0.05", "2.0"):
        env = {**os.environ, "CHECKPOINT_DIR": str(folder / spare)}
        words = [sys.executable, "-c", gpu_programs.SAVES, spare]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
        assert done.stdout == "the same\n", done.stderr[-3000:]
    return "what was saved is what was there, though the next step changed it at once"


def a_module_and_its_optimizer_are_restored(folder: Path) -> str:
    """To the last bit, through pinned memory."""
    _is_the_same(folder, gpu_programs.RESTORES)
    return "weights, buffers and the optimizer's state"


def a_sharded_module_is_saved_and_restored(folder: Path) -> str:
    """FSDP2's weights and their optimizer, on one rank: two need two GPUs."""
    _is_the_same(folder, gpu_programs.SAVES_SHARDED)
    return "weights and the optimizer's state"


def a_checkpoint_of_jax_is_the_state_of_its_moment(folder: Path) -> str:
    """Though the next step is given its arrays, with and without room for a copy on the GPU."""
    _is_the_same(folder, gpu_programs.SAVES_JAX)
    return "what was saved is what was there, though the next step took its memory at once"


def _is_the_same(folder: Path, program: str) -> None:
    env = {**os.environ, "CHECKPOINT_DIR": str(folder / "checkpoints")}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
    assert done.stdout == "the same\n", done.stderr[-3000:]


def a_task_that_dies_is_followed_by_one_with_its_gpu_open(folder: Path) -> str:
    """The zygote prepared it while the driver freed the memory."""
    events = _run(folder, gpu_programs.FINDS_OPEN)
    log = "\n".join(path.read_text() for path in sorted((folder / "run" / "logs").rglob("*.log")))
    found = re.findall(r"generation \d finds \([^)]*\)", log)
    assert events[-1]["state"] == "succeeded", (events[-1], log[-2000:])
    assert found == ["generation 1 finds ()", "generation 2 finds (0,)", "generation 3 finds (0,)"], found
    return "; ".join(found)


def the_next_run_finds_the_gpu_open(folder: Path) -> str:
    """With `--warm`, until the process is gone that keeps it."""
    if importlib.util.find_spec("click") is None:
        raise NotCheckedError("`oarlock run` needs the client's packages, click and others")
    library, found = _library(), []
    before = library.read()[0].memory
    (folder / "program.py").write_text(gpu_programs.TRAINS)
    for _ in range(3):
        done = _command(folder, "-n", "1", "--warm", "5m")
        assert done.returncode == 0, (done.stdout, done.stderr)
        found += re.findall(r"finds \([^)]*\)", done.stdout)
        wait_for(lambda: library.read()[0].memory - before > GIB // 4, "open GPU", PATIENCE)
    kept = library.read()[0].memory - before
    [keeper] = set(re.findall(r"process (\d+) will also keep", done.stdout))
    os.kill(int(keeper), signal.SIGTERM)
    wait_for(lambda: library.read()[0].memory - before < GIB // 4, "freed memory", PATIENCE)
    assert found == ["finds ()", "finds (0,)", "finds (0,)"], found
    assert kept < 0.75 * GIB, kept
    return f"{'; '.join(found)}; {kept / GIB:.2f} GiB meanwhile"


def a_report_does_not_wait_for_the_gpu(folder: Path) -> str:
    """The loss of a step is sent when it is there."""
    return _printed(gpu_programs.REPORTS)


def a_restart_has_the_compiler_and_the_gpu(folder: Path) -> str:
    """The zygote imports the compiler, and CUDA works in what it forks after that."""
    events = _run(folder, gpu_programs.COMPILES, modules=("torch",))
    log = "\n".join(path.read_text() for path in sorted((folder / "run" / "logs").rglob("*.log")))
    told = [line for line in log.splitlines() if "had" in line]
    assert events[-1]["state"] == "succeeded", (events[-1], log[-2000:])
    notes = [event["text"] for event in events if event["kind"] == "note"]
    assert not any("spawned" in note for note in notes), notes
    assert told[-1].endswith("had True"), told
    return "; ".join(told)


def a_fused_loss_is_as_exact_as_torchs(folder: Path) -> str:
    """The kernel of examples/gpt_torch: errors of the loss and both gradients, and torch's in brackets."""
    return _printed(gpu_programs.LOSES, str(EXAMPLES / "gpt_torch"))


def _printed(program: str, *args: str) -> str:
    words = [sys.executable, "-c", program, *args]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout.strip()


def gpus_are_shared_out(folder: Path) -> str:
    """One more task than there are GPUs is refused; a task sees as many as it asked for."""
    if importlib.util.find_spec("click") is None:
        raise NotCheckedError("`oarlock run` needs the client's packages, click and others")
    (folder / "program.py").write_text(gpu_programs.COUNTS)
    count = len(_library().read())
    refused = _command(folder, "-n", str(count + 1), "--set", "roles.worker.gpu=1")
    assert refused.returncode == 1, (refused.returncode, refused.stdout, refused.stderr)
    assert f"asks for {count + 1} GPUs" in refused.stderr, refused.stderr
    for asked in (0, 1):
        done = _command(folder, "-n", "1", "--set", f"roles.worker.gpu={asked}")
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert f"sees {asked} of them" in done.stdout, done.stdout
    return refused.stderr.strip()


def _command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`oarlock run` with these options, as a person types it."""
    start = [sys.executable, "-c", "from oarlock.cli import main; main()", "run", *words, "program.py"]
    env = {**os.environ, "OARLOCK_HOME": str(folder / "home")}
    return subprocess.run(
        start, cwd=folder, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


CHECKS: tuple[Check, ...] = (
    the_library_says_what_nvidia_smi_says,
    memory_of_a_killed_process_is_seen_to_be_freed,
    mfu_and_figures_are_reported,
    mfu_and_figures_are_reported_for_jax,
    torch_runs_out_of_memory,
    jax_runs_out_of_memory,
    a_restarted_task_finds_the_memory_free,
    an_assertion_on_the_device_is_named,
    the_kernel_log_is_read_or_is_not,
    a_checkpoint_is_the_state_of_its_moment,
    a_module_and_its_optimizer_are_restored,
    a_sharded_module_is_saved_and_restored,
    a_checkpoint_of_jax_is_the_state_of_its_moment,
    a_task_that_dies_is_followed_by_one_with_its_gpu_open,
    the_next_run_finds_the_gpu_open,
    a_report_does_not_wait_for_the_gpu,
    a_restart_has_the_compiler_and_the_gpu,
    a_fused_loss_is_as_exact_as_torchs,
    gpus_are_shared_out,
)


def has_gpu() -> bool:
    """Whether a driver of NVIDIA's answers here."""
    library = nvml.open_library()
    return library is not None and bool(library.read())


def _library() -> nvml.Nvml:
    library = nvml.open_library()
    assert library is not None, "no libnvidia-ml.so.1 that a driver answers"
    return library


def _is_out_of_memory(events: list[dict[str, Any]]) -> str:
    end = events[-1]
    restarts = [event for event in events if event["kind"] == "restart"]
    assert end["state"] == "failed", end
    assert end["reason"].startswith("GPU 0 ("), end["reason"]
    assert ") ran out of memory" in end["reason"], end["reason"]
    assert "ran out twice" in end["refusal"], end
    assert len(restarts) == 1, restarts
    return f"{end['reason']} | {end['message'][:600]}"


def _run(folder: Path, program: str, modules: Sequence[str] = (), **env: str) -> list[dict[str, Any]]:
    """The events of a run with one worker."""
    record = folder / "run"
    record.mkdir()
    (record / "events.jsonl").touch()
    (folder / "program.py").write_text(program)
    spec = Spec(
        run="gpu-check",
        folder=str(record),
        cwd=str(folder),
        program=Program("program", "program.py"),
        sizes={"worker": 1},
        folders={"model": str(record / "model")},
        env=env,
        modules=list(modules),
    )
    (record / "agent.json").write_text(spec.to_json())
    (record / "token").write_text("secret")
    start = "from oarlock.agent.__main__ import main; main()"
    agent = subprocess.Popen([sys.executable, "-c", start, str(record)], start_new_session=True)
    try:
        agent.wait(PATIENCE)
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
    events = [json.loads(line) for line in (record / "events.jsonl").read_text().splitlines()]
    if events[-1]["kind"] != "end" or events[-1]["state"] == "failed":
        logs = sorted((record / "logs").rglob("*.log"))
        print("\n".join(log.read_text(errors="replace")[-1500:] for log in logs[-1:]))
    return events


def main() -> int:
    """Run those that the arguments name, or all. Return how many failed; those not checked are named."""
    failed = 0
    unchecked = []
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        print(f"--- {check.__name__}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"ok: {check(Path(folder))}", flush=True)
            except NotCheckedError as reason:
                unchecked.append(check.__name__)
                print(f"NOT CHECKED: {reason}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED: {traceback.format_exc()}", flush=True)
    print(f"{failed} failed" if failed else "none failed" if unchecked else "all passed")
    if unchecked:
        print(f"{len(unchecked)} not checked: {', '.join(unchecked)}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
