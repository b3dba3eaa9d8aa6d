"""The layout is the architecture: what is pure, what travels, what loads quickly."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from oarlock.agent.spec import Program, Spec

SOURCE = Path(__file__).parents[1] / "src" / "oarlock"
PURE = ["job.py", "cluster.py", "contract.py", "events.py", "accounting.py", "typed.py", "chaos.py"]
TRAVELS = [
    "__init__.py",
    "cluster.py",
    "contract.py",
    "events.py",
    "accounting.py",
    "typed.py",
    *sorted(
        str(path.relative_to(SOURCE))
        for room in ("agent", "training")
        for path in (SOURCE / room).glob("*.py")
    ),
]
OBSTORE = {"agent/bucket.py"}  # only there, and only in the processes that snapshots have of their own
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "torch", "jax", "numpy"}
PRINTS = {
    *("print", "click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager"),
    *(f"sys.{stream}.{call}" for stream in ("stdout", "stderr") for call in ("write", "writelines")),
    *("echo", "secho", "traceback.print_exc", "os.write"),
}
# What reads, writes, starts or waits. `json` and friends are only text.
DOES_IO = {
    "os",
    "io",
    "pathlib",
    "socket",
    "subprocess",
    "shutil",
    "tempfile",
    "time",
    "asyncio",
    "threading",
}


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_do_no_io(name: str) -> None:
    tree = ast.parse((SOURCE / name).read_text())
    assert not {module.partition(".")[0] for module in _imports(tree)} & DOES_IO
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not [
        call.id for call in calls if isinstance(call, ast.Name) and call.id in ("open", "print", "input")
    ]


@pytest.mark.parametrize("name", TRAVELS)
def test_what_travels_imports_only_what_travels_and_the_standard_library(name: str) -> None:
    tree = ast.parse((SOURCE / name).read_text())
    allowed = set(sys.stdlib_module_names) | (FRAMEWORKS if name.startswith("training") else set())
    allowed |= {"obstore"} if name in OBSTORE else set()
    for module in _imports(tree):
        if module.partition(".")[0] == "oarlock":
            assert _travels(module), f"{name} imports {module}, which stays behind"
        else:
            assert module.partition(".")[0] in allowed, f"{name} imports {module}"


@pytest.mark.parametrize("name", TRAVELS)
def test_what_travels_is_python_3_9(name: str) -> None:
    ast.parse((SOURCE / name).read_text(), feature_version=(3, 9))


def test_the_agent_runs_a_gang_from_a_zip_with_nothing_installed(tmp_path: Path) -> None:
    """As in a pod: an isolated interpreter, one archive, no site-packages."""
    archive = tmp_path / "agent.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for name in TRAVELS:
            packed.write(SOURCE / name, f"oarlock/{name}")
    record = tmp_path / "run"
    record.mkdir()
    (record / "events.jsonl").touch()
    (tmp_path / "program.py").write_text("import oarlock; me = oarlock.current(); print(me.rank, me.world)")
    spec = Spec(
        run="packed",
        folder=str(record),
        cwd=str(tmp_path),
        program=Program("program", "program.py"),
        sizes={"worker": 2},
        folders={"model": str(record / "model")},
    )
    (record / "agent.json").write_text(spec.to_json())
    (record / "token").write_text("secret")
    start = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); from oarlock.agent.__main__ import main; main()"
    )
    done = subprocess.run(
        [_python_3_9() or sys.executable, "-I", "-S", "-c", start, str(record)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    result = json.loads((record / "result.json").read_text())
    assert result["state"] == "succeeded", done.stderr
    said = [(record / "logs" / "1" / f"worker-{index}.log").read_text() for index in (0, 1)]
    assert [text.split()[1:] for text in said] == [["0", "2"], ["1", "2"]]


@pytest.mark.parametrize("words", [["--help"], ["ps"]])
def test_help_and_ps_import_no_framework_and_no_client(words: list[str], home: Path) -> None:
    code = f"""
import sys
sys.argv = ["oarlock", *{words!r}]
from oarlock.cli import main
try:
    main()
finally:
    print("IMPORTED", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    imported = set(done.stdout.rpartition("IMPORTED")[2].split())
    assert "click" in imported, done.stderr
    assert not imported & (FRAMEWORKS | {"rich", "lightkube", "kubernetes", "httpx", "yaml", "msgspec"})


def _imports(tree: ast.Module) -> set[str]:
    """Everything a module imports, `if TYPE_CHECKING:` apart: that is never loaded."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _travels(module: str) -> bool:
    """`oarlock.agent.frames.send` names a thing inside a module: some prefix must be a file that travels."""
    parts = module.split(".")[1:]
    rooms = {str(Path(name).with_suffix("")) for name in TRAVELS} | {"agent/__init__", "training/__init__"}
    return any("/".join(parts[:end]) in rooms for end in range(1, len(parts) + 1))


def _python_3_9() -> str | None:
    """A real 3.9 where this machine has one; the syntax is checked anyway."""
    versions = Path.home() / ".pyenv" / "versions"
    found = sorted(versions.glob("3.9.*/bin/python3.9")) if versions.is_dir() else []
    return str(found[0]) if found else None


def test_verbs_print_through_one_module() -> None:
    """`output` spells control characters out; `display` makes each Text in one function that does."""
    for path in sorted((SOURCE / "cli").glob("*.py")):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in PRINTS, f"{path.name}:{node.lineno} calls {called}: use cli.output"
            if isinstance(node, (ast.Import, ast.ImportFrom)) and path.name != "display.py":
                names = ast.unparse(node)
                assert "rich" not in names, f"{path.name}:{node.lineno}: {names}: only display imports rich"
    display = (SOURCE / "cli" / "display.py").read_text()
    assert len(re.findall(r"\bText\(", display)) == 3, "line ends, the output of tasks, and all else"
