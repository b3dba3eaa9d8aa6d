"""examples/gpt_torch, which notes when each part of its start is done: a line of JSON in the file PARTS."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy  # noqa: F401  (and torch: only what a program itself imports is there when it restarts)
import torch  # noqa: F401

import oarlock

_done = [("main", time.time())]
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "gpt_torch"))

import train  # type: ignore[import-not-found]  # noqa: E402


def noted(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        result = function(*args, **named)
        _done.append((part, time.time()))
        return result

    return call


def loading(*args: Any) -> Any:
    threads = load_kernels(*args)
    threads[-1].join = noted("kernels", threads[-1].join)  # the caller joins them in their order
    return threads


def first_step(*args: Any) -> Any:
    loss = take_step(*args)
    loss.item()  # waits for the GPU
    _done.append(("step", time.time()))
    with Path(os.environ["PARTS"]).open("a") as file:
        print(json.dumps(_done), file=file)
    train.take_step = take_step
    return loss


load_kernels, take_step = train.load_kernels, train.take_step
train.my_device = noted("device", train.my_device)
train.GPT = noted("network", train.GPT)
oarlock.State = noted("state", oarlock.State)  # type: ignore[assignment, misc]
train.load_kernels, train.take_step = loading, first_step
train.main()
