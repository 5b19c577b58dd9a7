"""The machine of a run."""

import os
import platform
from pathlib import Path

import confluent_kafka
import psutil


def describe(folder: Path) -> str:
    """Describe cores, memory, versions, and the file system of `folder`, in three lines."""
    memory_gb = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({_cpu_name()}), {memory_gb:.0f} GB memory, "
        f"{_file_system(folder)}\n"
        f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"librdkafka {confluent_kafka.libversion()[0]}\n"
        "broker, clients and receivers share these cores"
    )


def _cpu_name() -> str:
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        for line in cpus.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _file_system(folder: Path) -> str:
    resolved = str(folder.resolve())
    mounts = [
        part for part in psutil.disk_partitions(all=True) if _holds(part.mountpoint, resolved)
    ]
    if not mounts:
        return "unknown file system"
    return max(mounts, key=lambda part: len(part.mountpoint)).fstype


def _holds(mount: str, path: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
