"""The layout is the architecture: which way imports go, what is pure, what travels, what loads quickly."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from oarlock.agent.protocol.spec import Program, Spec
from oarlock.engines.known_engines import ENGINES
from oarlock.program import agent_zip
from tests.support import layout
from tests.support.layout import SOURCE, Module, modules

TRAVELS = [
    "__init__.py",
    *sorted(
        str(path.relative_to(SOURCE))
        for room in (*agent_zip.TRAVELS, "serving")
        for path in (SOURCE / room).rglob("*.py")
    ),
]
# Only there, and only in the processes that snapshots and an ingest have of their own.
OBSTORE = {"checkpoints/bucket.py", "agent/ingest/object_origin.py"}
FRAMEWORKS = {"tensorflow", "keras", "tf_keras", "torch", "jax", "numpy", "onnx"}
# What the model server may import: the extra `serve`, and what runs a model.
SERVING = {*FRAMEWORKS, "uvicorn", "uvloop", "httptools", "orjson", "onnxruntime", "ai_edge_litert"}
CLIENT = {"lightkube", "httpx2", "httpcore2", "wsproto", "oarlock.engines.kubernetes"}
ENGINE_FOLDERS = {".".join(one.where.split(".")[:3]) for one in ENGINES.values()}
PRINTS = {
    *("print", "click.echo", "click.secho", "click.confirm", "click.prompt", "click.echo_via_pager"),
    *(f"sys.{stream}.{call}" for stream in ("stdout", "stderr") for call in ("write", "writelines")),
    *("echo", "secho", "traceback.print_exc", "os.write"),
}
# What reads, writes, starts or waits. `json` and friends are only text.
DOES_IO = {
    *("os", "io", "pathlib", "socket", "subprocess", "shutil", "tempfile", "time", "asyncio", "threading"),
}
# What has the name of another, and why. A name that is no longer there twice goes.
TWICE = {"public classes": {"Job": "`oarlock.Job` is what a user creates; it holds a `job.model.Job`"}}
CONTRIBUTING = SOURCE.parents[1] / "CONTRIBUTING.md"


def _path(module: Module) -> str:
    return str(module.path.relative_to(SOURCE))


def test_no_package_imports_another_that_imports_it() -> None:
    assert layout.cycles(layout.package_graph()) == []


def test_no_part_of_an_agent_imports_another_that_imports_it() -> None:
    """A part is a folder with all that is in it: lead and lead/phases are one."""
    graph: dict[str, set[str]] = {}
    for package, imported in layout.package_graph().items():
        graph.setdefault(_part(package), set()).update(map(_part, imported))
    parts = {part: others - {part} for part, others in graph.items() if part.startswith("oarlock.agent.")}
    assert {"oarlock.agent.lead", "oarlock.agent.host", "oarlock.agent.ingest"} <= set(parts)
    assert layout.cycles(parts) == []


def _part(package: str) -> str:
    return ".".join(package.split(".")[:3])


def test_imports_go_the_way_that_contributing_says() -> None:
    """Its list of folders is in order: each imports only what stands before it."""
    block = re.search(r"```order\n(.*?)```", CONTRIBUTING.read_text(), re.DOTALL)
    assert block
    order = re.findall(r"^(\w+)", block[1], re.MULTILINE)
    rooms = {name.split(".")[1] for name in modules() if name.count(".")} - {"__main__"}
    assert sorted(order) == sorted(rooms)
    for module in modules().values():
        if module.name in ("oarlock", "oarlock.__main__"):
            continue
        here = order.index(module.name.split(".")[1])
        for name in layout.imported(module, for_types=True) - {"oarlock"}:
            assert order.index(name.split(".")[1]) <= here, f"{module.name} imports {name}, which comes later"


def test_nothing_above_the_engines_knows_one_of_them() -> None:
    """Verbs, screens and the API ask an Engine. `ENGINES` is the only place that names where one is."""
    assert len(ENGINE_FOLDERS) == 2
    for module in modules().values():
        if module.name.split(".")[1:2] in (["cli"], ["screens"], ["api"]):
            found = {_part(name) for name in layout.imported(module, for_types=True)} & ENGINE_FOLDERS
            assert not found, f"{module.name} imports {found}"


def test_no_engine_imports_another() -> None:
    for module in modules().values():
        if module.name.startswith("oarlock.engines."):
            found = {_part(name) for name in layout.imported(module, for_types=True)} & ENGINE_FOLDERS
            found -= {_part(module.name)}
            assert not found, f"{module.name} imports {found}"


def test_each_package_says_what_belongs_there() -> None:
    for module in modules().values():
        if module.path.name == "__init__.py":
            assert len(module.docstring.splitlines()) >= 3, f"{_path(module)}: what is it for?"


def test_each_package_says_what_it_imports() -> None:
    """No more and no less, lazy imports and those for types counted. The public `oarlock` has them all."""
    packages = [module for module in modules().values() if module.path.name == "__init__.py"]
    assert len(packages) > 50
    for module in packages:
        if module.name == "oarlock":
            continue
        said = re.findall(r"\bImports [^.]*\.", " ".join(module.docstring.split()))
        assert said == [layout.import_sentence(module.name)], _path(module)


@pytest.mark.parametrize("kind", ["modules", "folders", "public classes"])
def test_no_name_exists_twice(kind: str) -> None:
    """Whoever reads a name knows which is meant, without its folder."""
    places: dict[str, list[str]] = {}
    for module in modules().values():
        for name in _names(module, kind):
            places.setdefault(name, []).append(_path(module))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert sorted(twice) == sorted(TWICE.get(kind, {})), twice


def _names(module: Module, kind: str) -> list[str]:
    stem = module.path.stem
    if kind == "modules":
        return [] if stem in ("__init__", "__main__", "main") else [stem]
    if kind == "folders":
        return [module.path.parent.name] if stem == "__init__" else []
    classes = [node.name for node in module.tree.body if isinstance(node, ast.ClassDef)]
    return [name for name in classes if not name.startswith("_")]


def test_nothing_grows_too_large() -> None:
    for module in modules().values():
        assert module.lines <= layout.LONGEST_MODULE, f"{_path(module)} has {module.lines} lines"
        for name, lines in layout.functions(module):
            assert lines <= layout.LONGEST_FUNCTION, f"{_path(module)}: {name} has {lines} lines"
    for folder, count in layout.widths().items():
        assert count <= layout.WIDEST_FOLDER or folder == "cli/verbs", f"{folder} has {count} modules"


def _pure() -> list[str]:
    return [name for name, module in modules().items() if re.search(r"\bPure\b", module.docstring)]


@pytest.mark.parametrize("name", _pure())
def test_what_says_that_it_is_pure_does_no_io(name: str) -> None:
    """Nor does anything that it imports."""
    left, seen = [name], set()
    while left:
        module = modules()[left.pop()]
        seen.add(module.name)
        assert not {full.partition(".")[0] for full in module.imports()} & DOES_IO, module.name
        calls = [node.func for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
        named = {call.id for call in calls if isinstance(call, ast.Name)}
        assert not named & {"open", "print", "input"}, module.name
        left += [other for other in layout.imported(module) - {"oarlock"} if other not in seen]


def test_the_core_is_pure() -> None:
    names = {
        "job.model",
        "run.cluster",
        "run.contract",
        "run.run_events",
        "run.run_state",
        "run.accounting",
        "run.typed",
        "agent.lead.conductor",
        "agent.lead.phase_machine",
        "agent.lead.roster",
    }
    assert {f"oarlock.{name}" for name in names} <= set(_pure())


@pytest.mark.parametrize("name", TRAVELS)
def test_what_travels_imports_only_what_travels_and_the_standard_library(name: str) -> None:
    module = next(module for module in modules().values() if _path(module) == name)
    allowed = set(sys.stdlib_module_names) | (FRAMEWORKS if name.startswith("training") else set())
    allowed |= SERVING if name.startswith("serving") else set()
    allowed |= {"obstore"} if name in OBSTORE else set()
    for full in module.imports():
        if full.partition(".")[0] != "oarlock":
            assert full.partition(".")[0] in allowed, f"{name} imports {full}"
    for other in layout.imported(module):
        assert _path(modules()[other]) in TRAVELS, f"{name} imports {other}, which stays behind"


@pytest.mark.parametrize("name", TRAVELS)
def test_what_travels_is_python_3_9(name: str) -> None:
    ast.parse((SOURCE / name).read_text(), feature_version=(3, 9))


def test_importing_the_package_installs_nothing() -> None:
    code = """
import sys
before = list(sys.meta_path), set(sys.modules)
import oarlock
assert sys.meta_path == before[0]
print(*(name for name in set(sys.modules) - before[1] if name.startswith("oarlock")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "oarlock\n", done.stderr


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
        timeout=300,
        check=False,
    )
    result = json.loads((record / "result.json").read_text())
    assert result["state"] == "succeeded", done.stderr
    said = [(record / "logs" / "1" / f"worker-{index}.log").read_text() for index in (0, 1)]
    assert [text.split()[1:] for text in said] == [["0", "2"], ["1", "2"]]


@pytest.mark.parametrize("words", [["--help"], ["ps"], ["status"], ["attach"]])
def test_looking_imports_no_framework_and_no_client(words: list[str], home: Path) -> None:
    """Not even at a run on a cluster, once it has ended."""
    folder = home / "runs" / "far"
    folder.mkdir(parents=True)
    (folder / "job.yaml").write_text("name: far\nprogram: train.py\n")
    (folder / "cluster.json").write_text(json.dumps({"namespace": "ns", "server": "https://127.0.0.1:1"}))
    begin = {"t": 1e9, "kind": "run", "job": "far", "engine": "kubernetes", "tasks": ["worker-0"]}
    end = {"t": 1e9 + 1, "kind": "end", "state": "succeeded", "code": 0}
    (folder / "events.jsonl").write_text(f"{json.dumps(begin)}\n{json.dumps(end)}\n")
    code = f"""
import sys
sys.argv = ["oarlock", *{words!r}]
from oarlock.cli import main
try:
    main()
finally:
    print("IMPORTED", *sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False
    )
    imported = set(done.stdout.rpartition("IMPORTED")[2].split())
    assert "click" in imported, done.stderr
    assert words == ["--help"] or "far" in done.stdout, done.stderr
    assert not imported & (FRAMEWORKS | CLIENT | {"rich", "yaml", "msgspec"})


@pytest.mark.parametrize("engine", ["kubernetes_engine", "deployments.serving_engine"])
def test_looking_at_a_run_on_a_cluster_imports_only_what_that_needs(engine: str) -> None:
    """What sends programs and talks to pods would take as long as the answer."""
    imported = _imported_with(f"oarlock.engines.kubernetes.{engine}")
    assert "httpx2" in imported
    assert not imported & (FRAMEWORKS | {"rich", "wsproto", "pathspec", "oarlock.program.bundle"})


def test_starting_a_run_here_imports_no_http() -> None:
    imported = _imported_with("oarlock.cli.verbs.run, oarlock.engines.local.local_engine")
    assert "yaml" in imported
    assert not imported & (FRAMEWORKS | CLIENT | {"rich", "http.client", "ssl", "asyncio"})


def _imported_with(names: str) -> set[str]:
    words = [sys.executable, "-c", f"import sys, {names}; print(*sys.modules)"]
    return set(subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout.split())


def test_verbs_print_through_one_module() -> None:
    """`output` spells control characters out; `live` makes each Text in one function that does."""
    for path in sorted([*(SOURCE / "cli").rglob("*.py"), *(SOURCE / "screens").glob("*.py")]):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in PRINTS, f"{path.name}:{node.lineno} calls {called}: use screens.output"
            if isinstance(node, (ast.Import, ast.ImportFrom)) and path.name != "live.py":
                names = ast.unparse(node)
                assert "rich" not in names, f"{path.name}:{node.lineno}: {names}: only live imports rich"
    display = (SOURCE / "screens" / "live.py").read_text()
    assert len(re.findall(r"\bText\(", display)) == 2, "the output of tasks, and all else"


def _python_3_9() -> str | None:
    """A real 3.9 where this machine has one; the syntax is checked anyway."""
    versions = Path.home() / ".pyenv" / "versions"
    found = sorted(versions.glob("3.9.*/bin/python3.9")) if versions.is_dir() else []
    return str(found[0]) if found else None


def test_the_deciding_and_the_hosting_half_of_an_agent_know_nothing_of_each_other() -> None:
    for module in modules().values():
        for half, other in (("lead", "host"), ("host", "lead")):
            if module.package == f"oarlock.agent.{half}":
                found = [
                    name for name in layout.imported(module, for_types=True) if f".agent.{other}." in name
                ]
                assert not found, f"{module.name} imports {found}"
