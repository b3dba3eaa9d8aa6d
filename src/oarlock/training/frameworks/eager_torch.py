"""Keep torch from importing its compiler for a program that compiles nothing.

torch's optimizers are marked for the compiler as code to leave alone, and the first use of such a mark
imports `torch._dynamo`: 1.2 s on a laptop, 3.9 of 8.8 s to the first step on an H200 machine. A mark
means nothing until that module is loaded, so until then the marked functions are called directly.
Any code that imports it (`torch.compile`, DDP, the program) finds torch unchanged.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any, Callable

from oarlock.training.frameworks.import_hooks import when_imported

_COMPILER = "torch._dynamo"
_MARK = "__dynamo_disable"  # where torch keeps the replacement of a marked function
_unmarked: list[Any] = []


def install() -> None:
    """Register what to do when torch is imported. Call it before that. Imports nothing."""
    when_imported("torch._compile", _spare_marks)
    when_imported("torch.optim.optimizer", _spare_steps)
    when_imported("torch._dynamo.eval_frame", _restore_marks)


def _spare_marks(module: ModuleType) -> None:
    """Return each function marked from now on unchanged."""
    mark = getattr(module, "_disable_dynamo", None)
    if mark is None or hasattr(mark, "_by_oarlock"):
        return

    @functools.wraps(mark)
    def spare(fn: Any = None, recursive: bool = True) -> Any:
        if fn is None:
            return functools.partial(spare, recursive=recursive)
        marked = mark(fn, recursive)
        if _COMPILER not in sys.modules and not hasattr(fn, _MARK):
            try:
                setattr(fn, _MARK, fn)
                _unmarked.append(fn)
            except AttributeError:
                pass  # a C function: torch imports its compiler when this one is called
        return marked

    spare._by_oarlock = True  # type: ignore[attr-defined]
    module._disable_dynamo = spare  # type: ignore[attr-defined]


def _restore_marks(_: ModuleType) -> None:
    """From now on torch makes its marks itself, each on first use."""
    while _unmarked:
        fn = _unmarked.pop()
        if getattr(fn, _MARK, None) is fn:
            delattr(fn, _MARK)


def _spare_steps(module: ModuleType) -> None:
    """Every optimizer's `step` imports the compiler by itself, to tell it where a graph ends."""
    decorate = getattr(module, "_use_grad_for_differentiable", None)
    torch: Any = sys.modules["torch"]
    if decorate is None or hasattr(decorate, "_by_oarlock"):
        return

    @functools.wraps(decorate)
    def spare(step: Callable[..., Any]) -> Callable[..., Any]:
        real = decorate(step)

        @functools.wraps(real)
        def without_compiler(self: Any, *args: Any, **options: Any) -> Any:
            if _COMPILER in sys.modules:
                return real(self, *args, **options)
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                return step(self, *args, **options)

        return without_compiler

    spare._by_oarlock = True  # type: ignore[attr-defined]
    module._use_grad_for_differentiable = spare  # type: ignore[attr-defined]
