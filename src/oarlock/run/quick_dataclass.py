"""The standard `dataclass(frozen=True)`, defined in a third of the time. Pure; travels into pods.

Every agent and zygote defines a hundred of them before its first task can start. The standard library
compiles six methods for each, 0.5 ms on Python 3.11; here all classes share five of the six. That saves 50 ms
of the 0.42 s that a run of `print("hi")` took. Type checkers see the standard decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses

    _Class = TypeVar("_Class", bound=type)

    def dataclass(*, frozen: bool) -> Callable[[_Class], _Class]:
        """Return the decorator; `frozen` has to be True."""
        assert frozen
        return _defined

    def _defined(kind: _Class) -> _Class:
        made = dataclasses.dataclass(eq=False, repr=False)(kind)
        made._names = tuple(field.name for field in dataclasses.fields(made))
        for name in _SHARED:
            if name not in kind.__dict__:
                setattr(made, name, _Frozen.__dict__[name])
        return made

    class _Frozen:
        def __setattr__(self, name: str, value: Any) -> None:
            if name in self.__dict__ or name not in self._names:  # `__init__` sets each field once
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            self.__dict__[name] = value

        def __delattr__(self, name: str) -> None:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

        def __eq__(self, other: object) -> bool:
            return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self) -> int:
            return hash(_values(self))

        def __repr__(self) -> str:
            shown = (f"{name}={value!r}" for name, value in zip(self._names, _values(self)))
            return f"{self.__class__.__qualname__}({', '.join(shown)})"

    _SHARED = ("__setattr__", "__delattr__", "__eq__", "__hash__", "__repr__")

    def _values(one: _Frozen) -> tuple[Any, ...]:
        return tuple(map(one.__dict__.__getitem__, one._names))
