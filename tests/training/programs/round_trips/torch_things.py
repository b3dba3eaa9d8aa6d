"""Modules, optimizers, schedulers and whatever else of torch has a state."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from round_trip import go_through, refused, restore, save, through, unkeepable
from torch import nn

torch.manual_seed(1)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self, wide=8):
        super().__init__()
        self.first = nn.Linear(5, wide)
        self.norm = nn.BatchNorm1d(wide)
        self.last = nn.Linear(wide, 5, bias=False)
        self.last.weight = nn.Parameter(self.first.weight.T.contiguous().clone())
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("nothing", torch.zeros(3, 0))

    def forward(self, x):
        self.seen += 1
        return self.last(nn.functional.dropout(self.norm(self.first(x)).relu(), 0.3, self.training))


OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    "fused": lambda p: torch.optim.AdamW(p, 0.01, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, 0.01, momentum=0.9, nesterov=True),
    "SGD": lambda p: torch.optim.SGD(p, 0.01),
    "RMSprop": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, momentum=0.5),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.01),
    "Adafactor": lambda p: torch.optim.Adafactor(p, 0.01),
    "tensor rate": lambda p: torch.optim.Adam(p, torch.tensor(0.01), foreach=False),
}
S = torch.optim.lr_scheduler
SCHEDULERS = {
    "Step": lambda o: S.StepLR(o, 2, 0.5),
    "MultiStep": lambda o: S.MultiStepLR(o, [2, 4, 4, 7], 0.5),
    "Lambda": lambda o: S.LambdaLR(o, lambda step: 1 / (step + 1)),
    "OneCycle": lambda o: S.OneCycleLR(o, 0.1, total_steps=20),
    "Cosine": lambda o: S.CosineAnnealingLR(o, 10),
    "Restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 3),
    "Plateau": lambda o: S.ReduceLROnPlateau(o, patience=1),
    "Sequential": lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 2), S.ExponentialLR(o, 0.9)], [2]),
    "Cyclic": lambda o: S.CyclicLR(o, 0.001, 0.1, step_size_up=3, cycle_momentum=False),
}


def same(one, other):
    assert type(one) is type(other), (type(one), type(other))
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)
        assert torch.equal(one, other) or torch.equal(one.isnan(), other.isnan())
    elif isinstance(one, dict):
        assert list(one) == list(other), (list(one), list(other))
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for left, right in zip(one, other):
            same(left, right)
    else:
        assert one == other, (one, other)


def step(net, optimizer, scheduler=None, number=0):
    torch.manual_seed(number)
    loss = net(torch.randn(16, 5)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if scheduler is not None:
        scheduler.step(loss.item()) if isinstance(scheduler, S.ReduceLROnPlateau) else scheduler.step()


def go_on(make_optimizer, make_scheduler=None):
    """Five steps, saved, five more; and the five more by fresh ones that were restored."""

    def fresh():
        net = Net()
        optimizer = make_optimizer(net.parameters())
        return {"net": net, "optimizer": optimizer, "scheduler": make_scheduler and make_scheduler(optimizer)}

    def train(things, steps):
        for number in steps:
            step(*things.values(), number)

    things = fresh()
    train(things, range(5))
    save(things)
    others = restore(fresh())
    for one, other in zip(things.values(), others.values()):
        if one is not None:
            same(one.state_dict(), other.state_dict())
    train(things, range(5, 10))
    train(others, range(5, 10))
    for one, other in zip(things.values(), others.values()):
        if one is not None:
            same(one.state_dict(), other.state_dict())


def case_optimizers_go_on_bit_for_bit():
    for name, make in OPTIMIZERS.items():
        try:
            go_on(make)
        except Exception as error:
            raise AssertionError(name) from error


def case_schedulers_go_on_bit_for_bit():
    for name, make in SCHEDULERS.items():
        try:
            go_on(OPTIMIZERS["momentum"], make)
        except Exception as error:
            raise AssertionError(name) from error


def case_several_groups_and_frozen_parameters():
    def fresh():
        net = Net()
        net.norm.weight.requires_grad_(False)
        groups = [{"params": net.first.parameters(), "lr": 0.1}, {"params": net.last.parameters()}]
        return {"net": net, "optimizer": torch.optim.Adam(groups, 0.01)}

    things = fresh()
    step(*things.values())
    after = through(things, fresh())
    same(things["optimizer"].state_dict(), after["optimizer"].state_dict())
    assert not after["net"].norm.weight.requires_grad


def case_an_optimizer_works_on_memory_of_its_own():
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    step(net, optimizer)
    other = Net()
    adam = torch.optim.Adam(other.parameters())
    through({"net": net, "optimizer": optimizer}, {"net": other, "optimizer": adam})
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    files = [[int(end, 16) for end in line[0].split("-")] for line in maps if "safetensors" in line[-1]]
    tensors = [*other.state_dict().values(), *(t for s in adam.state.values() for t in s.values())]
    for tensor in tensors:
        assert not any(begin <= tensor.data_ptr() < end for begin, end in files)


def case_a_scaler():
    def fresh():
        return torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)

    net, scaler = nn.Linear(2, 2), fresh()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    after = through({"scaler": scaler}, {"scaler": fresh()})["scaler"]
    same(scaler.state_dict(), after.state_dict())
    assert after.get_scale() == 8192


def case_every_type_of_number():
    names = (
        "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 complex128 complex64 int64 int32 int16"
    )
    names += " int8 uint64 uint32 uint16 uint8 bool"
    net, other = nn.Module(), nn.Module()
    for name in names.split():
        dtype = getattr(torch, name)
        random = torch.randint(0, 2 if name == "bool" else 100, (3, 5), dtype=torch.int64).to(dtype)
        for shape, value in {"whole": random, "0d": random[0, 0], "none": random[:0]}.items():
            net.register_buffer(f"{name}_{shape}", value)
            other.register_buffer(f"{name}_{shape}", torch.empty_like(value))
    through({"net": net}, {"net": other})
    for (name, one), two in zip(net.state_dict().items(), other.state_dict().values()):
        assert one.dtype == two.dtype
        one, two = (tensor.reshape(-1).view(torch.uint8).tolist() for tensor in (one, two))
        assert one == two, name


def case_tensors_that_do_not_lie_in_a_row():
    whole = torch.randn(4, 6, 8)
    net, other = nn.Module(), nn.Module()
    views = {
        "transposed": whole.mT,
        "every_other": whole[::2, :, 1::3],
        "expanded": whole[:1].expand(3, 6, 8),
    }
    views["last"] = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    views["conjugated"] = torch.randn(3, dtype=torch.complex64).conj()
    for name, view in views.items():
        net.register_buffer(name, view)
        other.register_buffer(name, torch.zeros(view.shape, dtype=view.dtype))
    through({"net": net}, {"net": other})
    for name, view in views.items():
        assert torch.equal(other.get_buffer(name), view), name


def case_tied_weights_stay_tied():
    def fresh():
        net = nn.ModuleDict({"embed": nn.Embedding(7, 3), "head": nn.Linear(3, 7, bias=False)})
        net["head"].weight = net["embed"].weight
        return net

    net = fresh()
    after = through({"net": net}, {"net": fresh()})["net"]
    assert after["head"].weight is after["embed"].weight
    assert torch.equal(after["head"].weight, net["head"].weight)


def case_wrapped_and_unwrapped_are_the_same():
    store = torch.distributed.FileStore(tempfile.mkdtemp() + "/store", 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    ddp = nn.parallel.DistributedDataParallel(Net())
    plain = Net()
    through({"net": ddp}, {"net": plain})
    same(ddp.module.state_dict(), plain.state_dict())
    other = nn.parallel.DistributedDataParallel(Net())
    through({"net": plain}, {"net": other})
    same(other.module.state_dict(), plain.state_dict())
    compiled = torch.compile(other)
    assert type(compiled).__name__ == "OptimizedModule"
    third = Net()
    through({"net": compiled}, {"net": third})
    same(third.state_dict(), plain.state_dict())
    again = torch.compile(Net())
    through({"net": third}, {"net": again})
    same(again._orig_mod.state_dict(), plain.state_dict())
    torch.distributed.destroy_process_group()


def case_single_tensors_are_changed_in_place():
    weight, steps = torch.randn(3, 2, requires_grad=True), torch.tensor(4)
    mine, count = torch.zeros(3, 2, requires_grad=True), torch.tensor(0)
    optimizer = torch.optim.SGD([mine], 0.1)
    after = through({"w": {"w": weight}, "n": steps}, {"w": {"w": mine}, "n": count})
    assert after["w"]["w"] is mine
    assert optimizer.param_groups[0]["params"][0] is mine
    assert torch.equal(mine, weight)
    assert after["n"] is count
    assert count == 4


def case_mismatches_are_said_in_a_sentence():
    def adam(net):
        return torch.optim.Adam(net.parameters())

    net, wide = Net(), Net(9)
    why = refused({"net": net}, {"net": wide})
    assert why.startswith("net: first.weight had shape (8, 5) and has (9, 5) now; "), why
    assert why.endswith(", and 4 more"), why
    why = refused({"net": nn.Linear(2, 2)}, {"net": nn.Linear(2, 2, bias=False)})
    assert why == "net: bias is gone", why
    why = refused({"net": nn.Linear(2, 2, bias=False)}, {"net": nn.Linear(2, 2)})
    assert why == "net: bias is new", why
    many = nn.Sequential(*[nn.Linear(2, 2) for _ in range(50)])
    why = refused({"net": nn.Linear(2, 2)}, {"net": many})
    assert why == "net: 0.weight is new; 0.bias is new; 1.weight is new, and 99 more", why
    why = refused({"o": adam(net)}, {"o": adam(nn.Linear(2, 2))})
    assert "doesn't match the size of optimizer's group" in why, why
    why = refused({"o": {"a": 1}}, {"o": adam(net)})
    assert why == "o was saved as plain values and is of type Adam now", why
    why = refused({"net": net}, {"net": 3})
    assert why == "net was saved as a state_dict and is of type int now", why


def case_what_cannot_be_kept_is_named():
    sparse = torch.eye(3).to_sparse()
    assert unkeepable([sparse]) == "thing.0 is a torch.Tensor of torch.float32, which cannot be saved"
    assert unkeepable({"g": torch.Generator()}) == "thing.g is a torch._C.Generator, which cannot be saved"
    assert unkeepable([nn.Linear(1, 1)]).startswith("thing.0 is a torch.nn.modules.linear.Linear")


if __name__ == "__main__":
    go_through(globals())
