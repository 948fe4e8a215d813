"""The kernels' tests under NVIDIA's compute-sanitizer: what they read and write outside of what is theirs.

    python benchmarks/sanitize_kernels.py [--tools memcheck,racecheck,initcheck,synccheck] [--only WORD] [--select EXPR]
        [--limit-s 150] [--total-s 540] [--sanitizer PATH] [--logs DIR] [-- ARGUMENTS OF PYTEST]

Each file of tests/runtime/device runs once without a tool, which compiles its kernels, and once under each: memcheck
(out of bounds, misaligned), racecheck (hazards in shared memory), initcheck (global memory that nothing has written),
synccheck (barriers).  A report counts as ours if it names one of our kernels; others are counted beside them.  Ends
with 1 if there is one of ours, or if a run fails, gives no verdict or runs out of time; with 2 without a sanitizer.
"""

import argparse
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests" / "runtime" / "device"
WITHOUT_KERNELS = ("test_flashinfer_build.py", "test_kernels_ahead.py")
"""They start processes, and launch nothing."""

PREFIX = "========= "
FOUND_CODE = 86
"""Exit status where a tool has found something and the tests have passed."""

MOST_PRINTED = 2000
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) ")
REMARKS = (
    "COMPUTE-SANITIZER",
    "ERROR SUMMARY",
    "RACECHECK SUMMARY",
    "LEAK SUMMARY",
    "Process ID",
    "Target application",
)
TOOLS: dict[str, list[str]] = {
    "none": [],
    "memcheck": ["--report-api-errors", "no"],
    "racecheck": [],
    "initcheck": [],
    "synccheck": [],
}


@dataclass(frozen=True)
class Verdict:
    """What came of a run.

    Attributes:
        status: What the process ended with; None where it ran out of time.
        seconds: How long it took.
        ours: First lines of the reports that name our kernels, with the kernel.
        others: How many reports name none.
        is_whole: Whether the tool has said its last word.
    """

    status: int | None
    seconds: float
    ours: list[str]
    others: int
    is_whole: bool

    @property
    def outcome(self) -> str:
        if self.status is None:
            return "out of time"
        if self.ours:
            return "findings"
        if not self.is_whole:
            return "no verdict"
        return "clean" if self.status in (0, FOUND_CODE) else f"tests failed ({self.status})"


def kernel_names() -> list[str]:
    """Names of all our kernels, as the driver knows them."""
    from sgl_runtime import device
    from sgl_runtime.device.kernels.kernel import Kernel

    modules = [import_module(module.name) for module in pkgutil.walk_packages(device.__path__, f"{device.__name__}.")]
    kernels = {value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}
    return sorted({kernel.function.__name__ for kernel in kernels})


def read_log(text: str, names: list[str]) -> tuple[list[str], int, bool]:
    """Reports of ours, how many others there are, and whether there is a summary."""
    reports: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith(PREFIX):
            continue
        said = line.removeprefix(PREFIX)
        # What belongs to a report is indented, or goes on with its accesses.
        if said[:1].isspace():
            if reports:
                reports[-1].append(said.strip())
        elif said and not said.startswith(REMARKS):
            reports.append([said])
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    matches = [(lines[0], pattern.search(" ".join(lines))) for lines in reports]
    ours = [f"{head} [{match[1]}]" for head, match in matches if match is not None]
    summary = SUMMARY.search(text)
    total = len(reports) if summary is None else max(int(summary[1]), len(reports))
    return ours, total - len(ours), summary is not None


def run(
    tool: str, file: Path, sanitizer: str, options: argparse.Namespace, names: list[str], limit_s: float
) -> Verdict:
    log, output = (options.logs / f"{tool}-{file.stem}.{kind}" for kind in ("log", "out"))
    command = [sys.executable, "-m", "pytest", str(file), "-q", "-p", "no:cacheprovider", *options.arguments]
    if options.select:
        command += ["-k", options.select]
    if tool != "none":
        settings = {
            "--tool": tool,
            "--error-exitcode": str(FOUND_CODE),
            "--print-limit": str(MOST_PRINTED),
            "--target-processes": "application-only",
            # Until the tests have loaded torch nothing can be attached to.
            "--launch-timeout": "120",
            "--show-backtrace": "device",
            "--log-file": str(log),
        }
        command = [sanitizer, *(word for pair in settings.items() for word in pair), *TOOLS[tool], *command]
    # Each tensor is an allocation of its own: within one block of memory no tool sees where a tensor ends.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    begin = time.monotonic()
    with output.open("w") as target:
        process = subprocess.Popen(
            command, env=environment, stdout=target, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = None
            # The tool's own process, and the tests that it runs in another.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    seconds = time.monotonic() - begin
    if tool == "none":
        return Verdict(status, seconds, [], 0, is_whole=True)
    text = log.read_text(errors="replace") if log.exists() else ""
    return Verdict(status, seconds, *read_log(text, names))


def show(tool: str, file: Path, verdict: Verdict, logs: Path) -> None:
    row = f"{tool:<10} {file.stem:<24} {verdict.seconds:>8.1f} {len(verdict.ours):>6} {verdict.others:>8}"
    print(f"{row}   {verdict.outcome}", flush=True)
    for line in sorted(set(verdict.ours))[:10]:
        print(f"    {line}")
    if verdict.outcome not in ("clean", "findings"):
        output = logs / f"{tool}-{file.stem}.out"
        print("    " + "\n    ".join(output.read_text(errors="replace").splitlines()[-12:]), flush=True)


def find_sanitizer(given: str | None) -> str:
    places = [given] if given else ["compute-sanitizer", "/usr/local/cuda/bin/compute-sanitizer"]
    found = next((path for path in map(shutil.which, places) if path is not None), None)
    if found is None:
        print(f"no compute-sanitizer at {' or '.join(places)}; --sanitizer names it", file=sys.stderr)
        raise SystemExit(2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="memcheck,racecheck,initcheck,synccheck")
    parser.add_argument("--only", default="", help="files whose name holds this")
    parser.add_argument("--select", default="", help="as pytest's -k")
    parser.add_argument("--limit-s", type=float, default=150.0, help="of each run")
    parser.add_argument("--total-s", type=float, default=540.0, help="of all")
    parser.add_argument("--sanitizer")
    parser.add_argument("--logs", type=Path, default=Path(tempfile.gettempdir()) / "sanitize-kernels")
    parser.add_argument("arguments", nargs="*", help="of pytest, behind --")
    options = parser.parse_args()
    tools = ["none", *options.tools.split(",")]
    if unknown := [tool for tool in tools if tool not in TOOLS]:
        parser.error(f"--tools names {unknown[0]!r}; there are {', '.join(list(TOOLS)[1:])}")
    sanitizer = find_sanitizer(options.sanitizer)
    options.logs.mkdir(parents=True, exist_ok=True)
    names, end = kernel_names(), time.monotonic() + options.total_s
    print(f"{len(names)} kernels; logs in {options.logs}")
    print(f"{'tool':<10} {'tests':<24} {'seconds':>8} {'ours':>6} {'others':>8}   outcome")
    is_clean = True
    for tool in tools:
        for file in sorted(TESTS.glob("test_*.py")):
            if file.name in WITHOUT_KERNELS or options.only not in file.name:
                continue
            left_s = end - time.monotonic()
            if left_s < 1.0:
                print(f"{tool:<10} {file.stem:<24} {'':>24}   not run: --total-s is over")
                is_clean = False
                continue
            verdict = run(tool, file, sanitizer, options, names, min(options.limit_s, left_s))
            show(tool, file, verdict, options.logs)
            is_clean = is_clean and verdict.outcome == "clean"
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
