"""What only a real GPU can show, as plain functions: each prints what it found, and raises where it is wrong.

    PYTHONPATH=src:. python3 -m tests.gpu.checks

needs NVIDIA's driver, torch with CUDA and, for one of them, JAX; nothing else, not even pytest. The agent
runs the programs as in a pod: with the standard library alone.
"""

from __future__ import annotations

import json
import os
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
from oarlock.run.gpus.gpu_peaks import peak_of
from oarlock.system.gpus import nvml
from oarlock.system.gpus.gpu_watch import is_used_by
from oarlock.system.gpus.kernel_log import KernelLog
from oarlock.system.polling import wait_for

GIB = 1 << 30
PATIENCE = 300.0
Check = Callable[[Path], str]

HOLDS = """
import sys, torch
kept = torch.empty(8 << 30, dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
print("holds", flush=True)
sys.stdin.read()
"""
MULTIPLIES = """
import time, torch, oarlock
me, size, times = oarlock.current(), 8192, 20
a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
torch.mm(a, b)
end, step = time.monotonic() + 15, 0
while time.monotonic() < end:
    for _ in range(times):
        torch.mm(a, b)
    step += 1
    me.report(step, flops=2 * size**3 * times)
    if step % 5 == 0:
        torch.cuda.synchronize()
"""
MULTIPLIES_JAX = """
import time, jax, jax.numpy as jnp, oarlock
me, size, times = oarlock.current(), 8192, 20
a = jnp.full((size, size), 1 / size, jnp.bfloat16)
multiply = jax.jit(lambda x: jax.lax.fori_loop(0, times, lambda _, y: y @ a, x))
x = multiply(a).block_until_ready()
end, step = time.monotonic() + 15, 0
while time.monotonic() < end:
    x, step = multiply(x), step + 1
    me.report(step, flops=2 * size**3 * times)
    if step % 5 == 0:
        x.block_until_ready()
"""
FILLS = """
import torch, oarlock
kept = []
for step in range(1, 10_000):
    kept.append(torch.empty(8 << 30, dtype=torch.uint8, device="cuda"))
    oarlock.current().report(step)
"""
FILLS_JAX = """
import jax, jax.numpy as jnp
kept = []
for step in range(10_000):
    kept.append(jnp.ones((2 << 30,), jnp.float32).block_until_ready())
"""
KILLS_ITSELF = """
import os, signal, torch, oarlock
me = oarlock.current()
free, total = torch.cuda.mem_get_info()
kept = torch.empty(int(total * 0.8), dtype=torch.uint8, device="cuda").fill_(1)
torch.cuda.synchronize()
me.report(me.generation)
if me.generation < 4:
    os.kill(os.getpid(), signal.SIGKILL)
"""
ASSERTS = """
import torch
rows = torch.zeros(4, device="cuda")
print(rows[torch.tensor([9], device="cuda")].cpu())
"""
SAVES = """
import os, sys
import torch
from oarlock.training.saving import gpu_copy
from oarlock.training.saving.session import CheckpointSession

gpu_copy._SPARE = float(sys.argv[1])
torch.manual_seed(0)
state = {
    "large": torch.rand(300 << 20, device="cuda"),
    "turned": torch.rand(1000, 30, device="cuda").to(torch.bfloat16).t(),
    "count": torch.tensor(7, device="cuda"),
    "empty": torch.empty(0, 3, device="cuda"),
    "here": torch.arange(5),
    "flags": torch.rand(999, device="cuda") > 0.5,
}
expected = {name: value.cpu().clone() for name, value in state.items()}
session = CheckpointSession()
session.prepare({"state": state})
for step in (1, 2):
    assert session.save(step, {"state": state}, {}, None)
    for _ in range(20):  # as the next step does, at once
        state["large"].add_(1.0)
        state["turned"].zero_()
        state["flags"].logical_not_()
        state["count"].add_(1)
    session.finish()
    found = {"state": {name: torch.zeros_like(value) for name, value in state.items()}}
    fresh = CheckpointSession()
    fresh.restore(found)
    assert fresh.step == step
    for name, value in expected.items():
        assert torch.equal(found["state"][name].cpu(), value), (step, name)
    expected = {name: value.cpu().clone() for name, value in state.items()}
session.close()
print("the same")
"""
REPORTS = """
import os, socket, time, torch
ours, theirs = socket.socketpair()
os.environ["OARLOCK_FD"] = str(theirs.detach())
from oarlock.training.task import channel
value = torch.ones((), device="cuda")
torch.cuda.synchronize()
took = []
for step in range(1, 4):
    torch.cuda._sleep(1_000_000_000)
    value = value + 1
    began = time.monotonic()
    channel.report({"step": step, "loss": value})
    took.append(time.monotonic() - began)
channel.flush()
lines = ours.recv(1 << 16).decode().splitlines()
assert '"loss": 4.0' in lines[-1], lines
print("a report takes", max(took), "s, the GPU", 0.5, "s or more")
"""
COMPILES = """
import os, signal, sys, time
had = "torch._dynamo" in sys.modules
import torch
import oarlock
me = oarlock.current()
model = torch.compile(torch.nn.Linear(64, 64).cuda())
model(torch.rand(8, 64, device="cuda")).sum().backward()
print("generation", me.generation, "had", had, flush=True)
me.report(step=me.generation)
if me.generation < 3:
    os.kill(os.getpid(), signal.SIGKILL)
"""


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
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
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
    return _has_figures(_run(folder, MULTIPLIES))


def mfu_and_figures_are_reported_for_jax(folder: Path) -> str:
    """The same: JAX names its devices in another way."""
    return _has_figures(_run(folder, MULTIPLIES_JAX))


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
    return _is_out_of_memory(_run(folder, FILLS))


def jax_runs_out_of_memory(folder: Path) -> str:
    """The same for JAX, whose message names no GPU."""
    return _is_out_of_memory(_run(folder, FILLS_JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false"))


def a_restarted_task_finds_the_memory_free(folder: Path) -> str:
    """Four generations with 80 % of the memory each, three of them killed with it."""
    events = _run(folder, KILLS_ITSELF)
    assert events[-1]["state"] == "succeeded", events[-1]
    ended = [event["t"] for event in events if event["kind"] == "task" and event["state"] == "ended"]
    again = [event["t"] for event in events if event["kind"] == "task" and event["state"] == "started"][1:]
    pauses = [f"{start - end:.3f}" for end, start in zip(ended, again)]
    notes = [event["text"] for event in events if event["kind"] == "note"]
    return f"seconds from death to the next fork: {', '.join(pauses)}; notes: {notes}"


def an_assertion_on_the_device_is_named(folder: Path) -> str:
    """An index that is out of range."""
    reason = str(_run(folder, ASSERTS)[-1].get("reason"))
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
        words = [sys.executable, "-c", SAVES, spare]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)
        assert done.stdout == "the same\n", done.stderr[-3000:]
    return "what was saved is what was there, though the next step changed it at once"


def a_report_does_not_wait_for_the_gpu(folder: Path) -> str:
    """The loss of a step is sent when it is there."""
    done = subprocess.run(
        [sys.executable, "-c", REPORTS], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def a_restart_has_the_compiler_and_the_gpu(folder: Path) -> str:
    """The zygote imports the compiler, and CUDA works in what it forks after that."""
    events = _run(folder, COMPILES, modules=("torch",))
    log = "\n".join(path.read_text() for path in sorted((folder / "run" / "logs").rglob("*.log")))
    told = [line for line in log.splitlines() if "had" in line]
    assert events[-1]["state"] == "succeeded", (events[-1], log[-2000:])
    notes = [event["text"] for event in events if event["kind"] == "note"]
    assert not any("spawned" in note for note in notes), notes
    assert told[-1].endswith("had True"), told
    return "; ".join(told)


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
    a_report_does_not_wait_for_the_gpu,
    a_restart_has_the_compiler_and_the_gpu,
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
    """Run those that the arguments name, or all. Return how many failed."""
    failed = 0
    for check in CHECKS:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        print(f"--- {check.__name__}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(f"ok: {check(Path(folder))}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED: {traceback.format_exc()}", flush=True)
    print(f"{failed} failed" if failed else "all passed")
    return failed


if __name__ == "__main__":
    sys.exit(main())
