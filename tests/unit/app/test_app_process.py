"""Processes give memory back to the system."""

import ctypes
import subprocess
import sys

import pytest

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
