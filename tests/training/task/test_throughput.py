"""Operations per second and MFU, from the steps that a program reports."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from oarlock.training.task.throughput import Throughput


class Measured:
    """A `Throughput` at a time that the test says, on GPUs that the test names."""

    def __init__(self, *devices: str, flops: float | None = 1e12, peak: float | None = None) -> None:
        self.now = 50.0
        self.devices: Sequence[str] = devices
        self.throughput = Throughput(lambda: self.now, lambda: self.devices)
        self.throughput.expect(flops, peak)

    def after(self, seconds: float, step: int) -> dict[str, float]:
        self.now += seconds
        return self.throughput.figures(step)


def test_the_share_of_what_the_gpu_can_do() -> None:
    measured = Measured("NVIDIA H200", flops=989e12 / 4)
    assert measured.after(0, step=1) == {}  # compiling came before it
    assert measured.after(4, step=9) == {"mfu": 0.5, "flops_per_second": 494.5e12}


def test_of_several_gpus_the_peaks_count_together() -> None:
    measured = Measured("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", flops=312e12)
    measured.after(0, step=1)
    assert measured.after(4, step=5)["mfu"] == 0.5


@pytest.mark.parametrize("devices", [(), ("cpu",), ("NVIDIA H200", "NVIDIA X1")])
def test_without_a_known_peak_there_is_only_the_speed(devices: tuple[str, ...]) -> None:
    measured = Measured(*devices)
    measured.after(0, step=1)
    assert measured.after(4, step=5) == {"flops_per_second": 1e12}


def test_a_peak_of_the_users_own_counts_first() -> None:
    measured = Measured("NVIDIA H200", peak=4e12)
    measured.after(0, step=1)
    assert measured.after(4, step=5)["mfu"] == 0.25


def test_a_moment_is_too_short_for_a_figure() -> None:
    """A program that runs ahead of its GPU seems fast at first."""
    measured = Measured()
    measured.after(0, step=1)
    assert measured.after(0.01, step=30) == {}
    assert measured.after(1.0, step=31) == {}
    assert measured.after(1.99, step=32) != {}


def test_figures_are_about_the_last_seconds() -> None:
    measured = Measured()
    for step in range(60):
        measured.after(1.0, step)
    assert measured.after(1.0, 60)["flops_per_second"] == 1e12
    told = [measured.after(0.5, step)["flops_per_second"] for step in range(61, 121)]
    assert told[0] < 1.2e12
    assert told[-1] == 2e12


def test_steps_that_take_longer_than_the_window_have_one() -> None:
    measured = Measured()
    for step in range(4):
        told = measured.after(100.0, step)
    assert told["flops_per_second"] == 1e10


def test_operations_may_differ_from_step_to_step() -> None:
    measured = Measured(flops=1e12)
    measured.after(0, step=1)
    measured.after(2, step=2)
    measured.throughput.expect(3e12, None)
    assert measured.after(2, step=3)["flops_per_second"] == 1e12


def test_counting_starts_again_with_the_steps() -> None:
    measured = Measured()
    measured.after(0, step=100)
    measured.after(4, step=104)
    assert measured.after(1, step=0) == {}
    assert measured.after(4, step=4) == {"flops_per_second": 1e12}


def test_nothing_is_said_unless_the_program_says_what_a_step_takes() -> None:
    measured = Measured("NVIDIA H200", flops=None)
    measured.after(0, step=1)
    assert measured.after(4, step=5) == {}


def test_tokens_are_counted_beside_the_operations_or_alone() -> None:
    measured = Measured(flops=None)
    measured.throughput.expect(tokens_per_step=1000)
    measured.after(0, step=1)
    assert measured.after(4, step=5) == {"tokens_per_second": 1000}
    measured.throughput.expect(flops=1e12)
    assert measured.after(4, step=9) == {}, "both count from here"
    assert measured.after(4, step=17) == {"flops_per_second": 2e12, "tokens_per_second": 2000}


@pytest.mark.parametrize("wrong", [0, -1.0, math.nan, math.inf])
def test_what_cannot_be_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="flops"):
        Throughput().expect(wrong, None)
    with pytest.raises(ValueError, match="peak"):
        Throughput().expect(None, wrong)
    with pytest.raises(ValueError, match="tokens_per_step"):
        Throughput().expect(tokens_per_step=wrong)
