"""How state on a GPU is laid out for its way off it. The way itself needs one: tests/gpu."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest

from oarlock.checkpoints.safetensors import Shape, places
from oarlock.training.saving import gpu_copy
from oarlock.training.saving.shared_buffer import Buffer
from oarlock.training.tensors import pinned_memory
from oarlock.training.tensors.pinned_memory import PIECE


def test_each_piece_fits_into_pinned_memory_and_has_its_place() -> None:
    size = 2 * PIECE + 5
    found = list(gpu_copy._pieces([((3, 3 + size), range(size)), ((size + 3, size + 10), range(7))]))
    assert [at for at, _ in found] == [3, 3 + PIECE, 3 + 2 * PIECE, size + 3]
    assert [data for _, data in found] == [
        range(PIECE),
        range(PIECE, 2 * PIECE),
        range(2 * PIECE, size),
        range(7),
    ]


@pytest.mark.parametrize("is_staged", [True, False])
def test_every_byte_is_at_its_place(is_staged: bool) -> None:
    torch = pytest.importorskip("torch")
    tensors: dict[str, Any] = {
        "a": torch.rand(3, 5),
        "b": torch.rand(4, 2).to(torch.bfloat16).t(),
        "c": torch.tensor(7),
        "d": torch.rand(9) > 0.5,
    }
    shapes = {
        name: Shape(str(one.dtype).partition(".")[2], tuple(one.shape)) for name, one in tensors.items()
    }
    shapes["here"] = Shape("float32", (2,))  # on the CPU, in the middle of the others
    at = places(shapes)
    ordered = {name: tensors[name] for name in sorted(tensors, key=lambda name: at[name])}
    size = sum(at[name][1] - at[name][0] for name in ordered)
    found = (
        gpu_copy._staged(torch, ordered, at, size) if is_staged else gpu_copy._as_they_are(torch, ordered, at)
    )
    memory = bytearray(max(end for _, end in at.values()))
    for (begin, end), data in found:
        memory[begin:end] = bytes(data.tolist())
    for name, one in ordered.items():
        flat = one.contiguous().reshape(-1).view(torch.uint8)
        assert memory[slice(*at[name])] == bytes(flat.tolist()), name
    assert memory[slice(*at["here"])] == bytes(8), "its place is left alone"


def test_all_pieces_come_through_the_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU: what is pinned, and what a stream is, play no part in which byte goes where."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(pinned_memory, "PIECE", 8)
    monkeypatch.setattr(torch.cuda, "stream", nullcontext)
    plain = torch.empty(pinned_memory.THREADS, 2, 8, dtype=torch.uint8)
    monkeypatch.setattr(pinned_memory, "allocate", lambda torch: plain)
    data = torch.randint(256, (500,), dtype=torch.uint8)
    buffer = Buffer(600)
    buffer.settle()
    gpu_copy._take_over(mock.Mock(), [((3, 400), data[:397]), ((450, 553), data[397:])], buffer)
    assert bytes(buffer.view(3, 400)) + bytes(buffer.view(450, 553)) == bytes(data.tolist())
    assert not any(buffer.view(400, 450)), "what is between them is left alone"
    buffer.close()


class _FullGpu:
    """Stands in for torch: a GPU of which torch keeps all, 40 bytes of them unused."""

    OutOfMemoryError = MemoryError
    largest = 40

    def __init__(self) -> None:
        self.cuda, self.refused = self, 0

    def mem_get_info(self, device: str) -> tuple[int, int]:
        return 0, 100

    def memory_reserved(self, device: str) -> int:
        return 100

    def memory_allocated(self, device: str) -> int:
        return 60

    def take(self, torch: Any, tensors: Any, places: Any, size: int) -> list[Any]:
        if size > self.largest:
            self.refused += 1
            raise self.OutOfMemoryError
        return [((0, size), "staged")]


@pytest.fixture
def full_gpu(monkeypatch: pytest.MonkeyPatch) -> _FullGpu:
    gpu = _FullGpu()
    monkeypatch.setattr(gpu_copy, "_staged", gpu.take)
    monkeypatch.setattr(gpu_copy, "_full", set())
    return gpu


def test_memory_that_torch_keeps_is_room_for_the_next_copy(full_gpu: _FullGpu) -> None:
    assert gpu_copy._staged_with_room(full_gpu, "cuda:0", {}, {}, 30) == [((0, 30), "staged")]
    assert gpu_copy._staged_with_room(full_gpu, "cuda:0", {}, {}, 36) is None, "5 % stay free"


def test_a_gpu_without_room_in_one_piece_costs_no_training_and_is_asked_once(full_gpu: _FullGpu) -> None:
    full_gpu.largest = 20
    assert gpu_copy._staged_with_room(full_gpu, "cuda:0", {}, {}, 30) is None
    assert gpu_copy._staged_with_room(full_gpu, "cuda:0", {}, {}, 30) is None
    assert full_gpu.refused == 1
    assert gpu_copy._staged_with_room(full_gpu, "cuda:1", {}, {}, 10) == [((0, 10), "staged")]
