"""Run a function right after a module is imported, without importing the module here.

A framework takes seconds to import, so Oarlock must not import one just because the program might. Changes
to a framework are registered here and applied when the program imports it. After that, the module shows no
trace: its spec and loader are the real ones.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable

Action = Callable[[ModuleType], None]

_actions: dict[str, list[Action]] = {}
_executing: set[str] = set()  # modules whose actions the loader executing them will run
_lock = threading.Lock()


def when_imported(module: str, action: Action) -> None:
    """Run `action` on `module` now if it is already imported, else right after it is imported.

    Registering the same action twice runs it once; a reload, which undoes what an action did, runs it
    again. A namespace package runs no code when it is imported, so there is no moment to wait for.
    """
    with _lock:
        registered = _actions.setdefault(module, [])
        if action in registered:
            return
        registered.append(action)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
        if module in _executing:
            return
    imported = sys.modules.get(module)
    if imported is None:
        return
    spec = getattr(imported, "__spec__", None)
    if spec is not None and getattr(spec, "_initializing", False):
        _when_initialized(spec, imported, action)
    else:
        _run(action, imported)


class _Finder:
    """First on the meta path: it lets the other finders find a module and wraps its loader."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _actions:
            return None
        for finder in list(sys.meta_path):
            find_spec = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec(name, path, target) if find_spec else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None

    def invalidate_caches(self) -> None:
        pass


class _Loader:
    """Wraps a module's loader until the module runs, then puts the real one back.

    A caller that only wants the spec (`importlib.util.find_spec`) can still use every method of the real one.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # not initialized yet, while being copied or unpickled
            raise AttributeError(name)
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        for owner, attribute in ((module.__spec__, "loader"), (module, "__loader__")):
            if getattr(owner, attribute, None) is self:
                setattr(owner, attribute, self._loader)
        name = module.__name__
        with _lock:
            _executing.add(name)
        try:
            self._loader.exec_module(module)
        finally:
            with _lock:
                _executing.discard(name)
                actions = list(_actions[name])
        # A module may replace itself in sys.modules with another object, which is what the program gets.
        imported: ModuleType = sys.modules.get(name, module)
        for action in actions:
            _run(action, imported)


class _Initializing(ModuleSpec):
    """A spec that runs actions when its import, already under way, has finished."""

    _waiting: list[tuple[ModuleType, Action]]

    @property
    def _initializing(self) -> bool:
        return True

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        if value:
            return
        self.__class__ = ModuleSpec  # type: ignore[assignment]
        self._initializing = False
        for module, action in self.__dict__.pop("_waiting"):
            if self.name in sys.modules:  # otherwise the import failed
                _run(action, module)


def _when_initialized(spec: ModuleSpec, module: ModuleType, action: Action) -> None:
    if not isinstance(spec, _Initializing):
        spec.__class__ = _Initializing
        spec._waiting = []  # type: ignore[attr-defined]
    spec._waiting.append((module, action))  # type: ignore[attr-defined]


def _run(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except Exception as error:
        what = getattr(action, "__name__", repr(action))
        warnings.warn(
            f"oarlock could not prepare {module.__name__} ({what}): {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


_finder = _Finder()
