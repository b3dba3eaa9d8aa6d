"""What the checks of a real GPU run, each in a process or a run of its own."""

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
import torch, oarlock
rows = torch.zeros(4, device="cuda")
for step in (1, 2):
    oarlock.current().report(step, loss=rows.sum())  # the second is on the way when the GPU fails
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
SAVES_SHARDED = """
import os, tempfile
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from oarlock.training.saving.session import CheckpointSession

meeting = tempfile.mktemp()
dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=0, world_size=1)
torch.cuda.set_device(0)

def made():
    model = torch.nn.Sequential(*[torch.nn.Linear(3000, 3000) for _ in range(4)]).cuda()
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), 1e-2, fused=True)

def bits(model, optimizer):
    found = dict(model.state_dict())
    for number, state in optimizer.state_dict()["state"].items():
        found.update({f"{number}.{name}": value for name, value in state.items()})
    plain = {name: getattr(value, "to_local", lambda: value)() for name, value in found.items()}
    return {name: value.detach().cpu().clone() for name, value in plain.items()}

def train(model, optimizer):
    model(torch.rand(64, 3000, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

torch.manual_seed(0)
model, optimizer = made()
train(model, optimizer)
expected = bits(model, optimizer)
session = CheckpointSession()
assert session.save(1, {"model": model, "optimizer": optimizer}, {}, None)
train(model, optimizer)  # at once
session.finish()
session.close()
model, optimizer = made()
CheckpointSession().restore({"model": model, "optimizer": optimizer})
found = bits(model, optimizer)
assert found.keys() == expected.keys(), (found.keys(), expected.keys())
for name in expected:
    assert torch.equal(found[name], expected[name]), name
train(model, optimizer)
dist.destroy_process_group()
print("the same")
"""
SAVES_JAX = """
import jax, jax.numpy as jnp, numpy as np
from oarlock.training.saving import jax_copy
from oarlock.training.saving.session import CheckpointSession

def made():
    keys = jax.random.split(jax.random.key(0), 2)
    return {
        "large": jax.random.normal(keys[0], (300 << 20,)),
        "half": jax.random.normal(keys[1], (1000, 30), jnp.bfloat16),
        "count": jnp.int32(7),
        "empty": jnp.zeros((0, 3)),
    }

change = jax.jit(lambda tree: jax.tree.map(lambda one: one + 1, tree), donate_argnums=0)
for spare in (0.05, 2.0):  # with a copy on the GPU, and as if there were no room for one
    jax_copy._SPARE = spare
    tree = made()
    expected = jax.tree.map(np.asarray, made())
    session = CheckpointSession()
    for step in (1, 2):
        assert session.save(step, {"tree": tree}, {}, None)
        assert bool(session._writer._copying) is (spare < 1)
        for _ in range(20):  # as the next step does, at once
            tree = change(tree)
        session.finish()
        found = {"tree": jax.tree.map(jnp.zeros_like, tree)}
        fresh = CheckpointSession()
        fresh.restore(found)
        assert fresh.step == step
        for name, value in expected.items():
            assert np.asarray(found["tree"][name]).tobytes() == value.tobytes(), (spare, step, name)
        expected = jax.tree.map(np.asarray, jax.tree.map(jnp.copy, tree))
    session.close()
    import os, shutil
    shutil.rmtree(os.environ["CHECKPOINT_DIR"])
print("the same")
"""
RESTORES = """
import torch
from torch import nn
from oarlock.training.saving.session import CheckpointSession

def made():
    # Larger than what is copied in one go; two names for one weight; a weight whose numbers lie otherwise.
    model = nn.Sequential(nn.Linear(6000, 6000), nn.Conv2d(64, 64, 3), nn.BatchNorm1d(8))
    model.tied, model[1] = model[0], model[1].to(memory_format=torch.channels_last)
    model = model.cuda()
    model.brief = torch.nn.Parameter(torch.rand(333, 777, device="cuda", dtype=torch.bfloat16))
    return model, torch.optim.AdamW(model.parameters(), 1e-2, fused=True)

def bits(model, optimizer):
    found = dict(model.state_dict())
    for number, state in optimizer.state_dict()["state"].items():
        found.update({f"{number}.{name}": value for name, value in state.items()})
    return {name: value.cpu().clone() for name, value in found.items()}

torch.manual_seed(0)
model, optimizer = made()
for weight in model.parameters():
    weight.grad = torch.rand_like(weight)
optimizer.step()
session = CheckpointSession()
assert session.save(1, {"model": model, "optimizer": optimizer}, {}, None)
session.finish()
session.close()
expected = bits(model, optimizer)
model, optimizer = made()
for weight in model.parameters():
    weight.data.fill_(7)  # still under way when it is restored
CheckpointSession().restore({"model": model, "optimizer": optimizer})
found = bits(model, optimizer)
assert found.keys() == expected.keys(), (found.keys(), expected.keys())
for name in expected:
    assert torch.equal(found[name], expected[name]), name
weights = [weight.grad is None and weight.is_leaf for weight in model.parameters()]
assert all(weights)
print("the same")
"""
FINDS_OPEN = """
import os, signal, oarlock
from oarlock.system.gpus import cuda_driver
me = oarlock.current()
print("generation", me.generation, "finds", cuda_driver.contexts(), flush=True)
import torch
kept = torch.ones(8 << 28, device="cuda")
kept.add_(1)
me.report(step=me.generation)
if me.generation < 3:
    os.kill(os.getpid(), signal.SIGKILL)
"""
TRAINS = """
import oarlock, torch
from oarlock.system.gpus import cuda_driver
print("finds", cuda_driver.contexts(), flush=True)
value = torch.ones(8, 8, device="cuda")
oarlock.current().report(1, loss=(value @ value).mean())
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
COUNTS = """
import torch
print("sees", torch.cuda.device_count(), "of them")
"""
# TRITON_INTERPRET=1 runs it without a GPU, where Triton is installed.
LOSES = """
import copy
import sys
sys.path.insert(0, sys.argv[1])
import torch
from fused_loss import fused_loss
from model import GPT, Config, cross_entropy
device = "cuda" if torch.cuda.is_available() else "cpu"

def results(loss, *given):
    weights = [tensor.detach().clone().requires_grad_() for tensor in given[:2]]
    value = loss(*weights, *given[2:])
    (value * 2).backward()  # it takes any gradient, not only 1
    return [tensor.double() for tensor in (value.detach(), *(weight.grad for weight in weights))]

def errors(found, exact):
    return [((one - other).norm() / other.norm()).item() for one, other in zip(found, exact, strict=True)]

torch.manual_seed(1)
for rows, columns in ((61, 50_304), (700, 256), (129, 5_000)):
    made = {"device": device, "dtype": torch.bfloat16}
    hidden, weight = (torch.randn(count, 64, **made) for count in (rows, columns))
    targets = torch.randint(columns, (rows,), device=device)
    targets[:2] = torch.tensor([0, columns - 1])
    given = (hidden, weight, targets)
    exact = results(lambda h, w, t: cross_entropy(h.double(), w.double(), t), *given)
    ours, plain = (errors(results(loss, *given), exact) for loss in (fused_loss, cross_entropy))
    print(rows, columns, *(f"{our:.1e} ({their:.1e})" for our, their in zip(ours, plain)), end="; ")
    assert all(our < max(1.5 * their, 1e-4) for our, their in zip(ours, plain)), (ours, plain)

def gradients(network, forward, loss):
    forward(rows[:, :-1], rows[:, 1:], loss=loss).backward()
    return [weight.grad.double() for weight in network.parameters()]

with torch.device(device):
    network = GPT(Config(layers=2, context=128, dropout=0.0, vocabulary=5_000)).to(torch.bfloat16)
    rows = torch.randint(5_000, (4, 129))
exact, plain = (copy.deepcopy(network) for _ in range(2))
forward = torch.compile(network) if device == "cuda" else network
found = gradients(network, forward, fused_loss), gradients(plain, plain, cross_entropy)
exact = gradients(exact.double(), exact, cross_entropy)
our, their = (torch.tensor(errors(one, exact)).mean().item() for one in found)
assert our < 1.5 * their, (our, their)
print(f"a network's gradients: {our:.1e} ({their:.1e})")
"""
