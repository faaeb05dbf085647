"""When the heap is trimmed, and that a trim gives back what a request has taken."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hf_transformers_backend.heap import SPARE_BYTES, SWEEP_SECONDS, Sweeper, measure

GIB = 2**30
BACKEND = Path(__file__).parents[3] / "backend"
REQUEST = """
import threading
from hf_transformers_backend.heap import Sweeper, measure

kept = []

def request():
    # Small blocks, with one that stays after each: what ends a request leaves.
    blocks = []
    for _ in range(4000):
        blocks.append(b"x" * 100_000)
        kept.append(bytes(600))

before, _ = measure()
thread = threading.Thread(target=request)
thread.start()
thread.join()
free, resident = measure()
Sweeper().sweep()
print(free - before, resident - measure()[1])
"""

THREADS = """
import ctypes
import threading
from hf_transformers_backend import heap

heap.set_up()
together = threading.Barrier({threads})

def work():
    together.wait()
    kept.append([bytes(5000) for _ in range(100)])
    together.wait()

kept = []
threads = [threading.Thread(target=work) for _ in range({threads})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL("libc.so.6").malloc_stats()
"""


class Memory:
    """A heap whose free and resident bytes are as told; a trim takes the resident ones down to `after`."""

    def __init__(self) -> None:
        self.free = self.resident = self.after = 0
        self.now = 100.0
        self.trims = 0
        self.sweeper = Sweeper(lambda: (self.free, self.resident), self.trim, lambda: self.now)

    def trim(self) -> None:
        self.trims += 1
        self.resident = self.after

    def look(self, free: int, resident: int, after: int | None = None) -> bool:
        """Whether a sweep that finds this trims."""
        self.free, self.resident, self.after = free, resident, resident if after is None else after
        self.now += SWEEP_SECONDS
        before = self.trims
        self.sweeper.sweep()
        return self.trims > before


def test_what_was_freed_is_given_back_once() -> None:
    memory = Memory()
    assert not memory.look(SPARE_BYTES, GIB)
    assert memory.look(5 * GIB, 6 * GIB, after=GIB)
    assert not memory.look(5 * GIB, GIB), "free for the process, and the kernel's again"
    assert memory.look(6 * GIB, 2 * GIB, after=GIB)


def test_what_a_large_request_still_holds_is_given_back_when_it_ends() -> None:
    memory = Memory()
    assert memory.look(GIB, 8 * GIB)
    assert memory.look(6 * GIB, 8 * GIB, after=GIB)


def test_what_is_taken_again_and_freed_between_two_looks_is_given_back_too() -> None:
    memory = Memory()
    assert memory.look(5 * GIB, 6 * GIB, after=GIB)
    assert memory.look(5 * GIB, 5 * GIB, after=GIB)
    assert not memory.look(SPARE_BYTES // 2, 5 * GIB), "in use"
    assert memory.look(5 * GIB, 5 * GIB, after=GIB)


def test_a_loaded_model_is_no_reason_to_trim() -> None:
    memory = Memory()
    assert not memory.look(SPARE_BYTES // 2, GIB)
    assert not memory.look(SPARE_BYTES // 2, 20 * GIB)


def test_it_looks_no_more_often_than_told() -> None:
    memory = Memory()
    memory.look(0, 0)
    memory.free = 5 * GIB
    memory.now += SWEEP_SECONDS / 2
    memory.sweeper.sweep()
    assert memory.trims == 0


def test_the_heap_of_a_thread_is_seen_and_given_back() -> None:
    if measure()[1] == 0:
        pytest.skip("no glibc that can tell")
    # In a process of its own: here, a thread may fill again what an earlier one has left free.
    done = subprocess.run(
        [sys.executable, "-c", REQUEST],
        env={"PYTHONPATH": str(BACKEND)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    freed, given_back = map(int, done.stdout.split())
    assert freed > SPARE_BYTES
    assert given_back > SPARE_BYTES // 2


def arenas(threads: int, **environment: str) -> int:
    """In how many arenas as many threads have put what they made at the same time."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS.format(threads=threads)],
        env={"PYTHONPATH": str(BACKEND), **environment},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr.count("Arena ")


def test_threads_share_one_arena_per_core() -> None:
    if measure()[1] == 0:
        pytest.skip("no glibc that can tell")
    cores = len(os.sched_getaffinity(0))
    assert arenas(2 * cores + 3) == cores


@pytest.mark.parametrize(
    ("variable", "value"), [("MALLOC_ARENA_MAX", "{}"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max={}")]
)
def test_glibcs_own_settings_of_the_arenas_win(variable: str, value: str) -> None:
    if measure()[1] == 0:
        pytest.skip("no glibc that can tell")
    cores = len(os.sched_getaffinity(0))
    assert arenas(2 * cores + 3, **{variable: value.format(cores + 2)}) == cores + 2
