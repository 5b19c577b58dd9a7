"""Processes give memory back to the system."""

import ctypes
import subprocess
import sys

import pytest

from tests.support.processes.waiting import DEADLINE_S

THREADS = 12

SCRIPT = f"""
import ctypes, sys, threading
from app.process import return_freed_memory

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes, libc.malloc_info.argtypes = [ctypes.c_void_p], [ctypes.c_int, ctypes.c_void_p]
libc.fdopen.restype, libc.fflush.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

return_freed_memory()
# As a batch of the log: without the setting, the next blocks of its size are in the heap.
libc.free(libc.malloc(2**20))
libc.malloc(2**20)
all_have_some = threading.Barrier({THREADS})

def allocate():
    libc.malloc(100)
    all_have_some.wait()

threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for each in threads:
    each.start()
for each in threads:
    each.join()
output = libc.fdopen(1, b"w")
libc.malloc_info(0, output)
libc.fflush(output)
"""


HOLES_SCRIPT = f"""
import ctypes, time
from pathlib import Path
from app.process import return_freed_memory

BLOCK_BYTES, BLOCKS, KEPT_EACH = 1_024, 60_000, 64
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

return_freed_memory(trim_s=0.05)
blocks = [libc.malloc(BLOCK_BYTES) for _ in range(BLOCKS)]
for each in blocks:
    ctypes.memset(each, 1, BLOCK_BYTES)
full = resident_pages()
for number, each in enumerate(blocks):
    # What is kept stops the library from returning the memory below it by itself.
    if number % KEPT_EACH:
        libc.free(each)
end_s = time.monotonic() + {DEADLINE_S}
while full - resident_pages() < BLOCK_BYTES * BLOCKS / 2 / 4_096:
    assert time.monotonic() < end_s, (full, resident_pages())
    time.sleep(0.01)
"""


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="needs glibc")
def test_threads_share_two_heaps_and_large_blocks_are_in_none() -> None:
    report = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, check=True, text=True, timeout=60
    ).stdout
    assert report.count("<heap nr=") == 2
    mapped = next(line for line in report.splitlines() if 'type="mmap"' in line)
    size_bytes = int(mapped.rpartition('size="')[2].partition('"')[0])
    assert size_bytes >= 2**20


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_free_memory_between_blocks_in_use_is_returned() -> None:
    subprocess.run([sys.executable, "-c", HOLES_SCRIPT], check=True, timeout=2 * DEADLINE_S)
