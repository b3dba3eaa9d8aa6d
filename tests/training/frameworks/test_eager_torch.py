"""Programs that compile nothing never import torch's compiler; those that do find torch as it was."""

from __future__ import annotations

import subprocess
import sys

from tests.support.soaking import only_in_soak

TRAIN = """
import sys
if {installed}:
    from oarlock.training.frameworks import eager_torch
    eager_torch.install()
import torch

def train(optimizer, model):
    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(8, 16)).square().mean()
        loss.backward()
        return loss
    for _ in range(3):
        optimizer.step(closure)
    optimizer.load_state_dict(optimizer.state_dict())
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()

torch.manual_seed(0)
model = torch.nn.Linear(16, 16)
for kind in (torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.LBFGS):
    train(kind(model.parameters(), lr=0.01), model)
print("compiler", "torch._dynamo" in sys.modules, file=sys.stderr)
print(model.weight.double().sum().item(), torch.is_grad_enabled())

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
compiled = torch.compile(model, backend="eager")
step = torch.compile(lambda: optimizer.step(), backend="eager")
for _ in range(2):
    compiled(torch.ones(8, 16)).square().mean().backward()
    step()
print(model.weight.double().sum().item())
print([name for name, value in vars(torch.optim.Optimizer).items() if hasattr(value, "__dynamo_disable")])
print(torch._dynamo.explain(step)().graph_break_count)
"""


def trained(installed: bool) -> tuple[str, bool]:
    """What the program printed, and whether it imported the compiler before it compiled."""
    program = TRAIN.format(installed=installed)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, "compiler True" in done.stderr


@only_in_soak
def test_the_compiler_is_imported_when_something_is_compiled_and_not_before() -> None:
    plain, ours = trained(installed=False), trained(installed=True)
    assert ours == (plain[0], False)
    assert plain[1], "torch no longer imports it for its optimizers: eager_torch is not needed any more"
