"""A Mooncake master and client as processes, and a Python store that talks to them.

Needs the Python package mooncake (PyPI: mooncake-transfer-engine-non-cuda) on sys.path. The client
is the package's own unless MOONCAKE_CLIENT names another, say one that was built with the kit.
"""

import os
import pathlib
import re
import subprocess
import time

import mooncake

PACKAGE = pathlib.Path(mooncake.__path__[0])
MASTER_PORT, CLIENT_PORT = 50051, 50052
SEGMENT_BYTES = 128 << 20
FILLER_BYTES = 4 << 20
# Time for which an object that was asked for stays in memory, seconds.
LEASE = 0.2

# How long a thing may take that Mooncake does in its own time (heartbeats, eviction), seconds.
PATIENCE = 60


class Process:
    """A program whose output goes to a file."""

    def __init__(self, program, arguments, log, environment=None):
        self.log = pathlib.Path(log)
        self.seen = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [program, *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
            )

    def wait_for(self, words):
        """Until the program has written `words` since it was started."""

        def written():
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.log} ended:\n{self.text()[-3000:]}")
            return re.search(words, self.text())

        wait(written, f"{self.log} has no {words!r}:\n{self.text()[-3000:]}")

    def text(self):
        return self.log.read_bytes()[self.seen :].decode(errors="replace")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def wait(condition, otherwise):
    deadline = time.monotonic() + PATIENCE
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.1)
    return result


def client_program():
    return os.environ.get("MOONCAKE_CLIENT") or str(PACKAGE / "mooncake_client")


def start_master(folder):
    master = Process(
        str(PACKAGE / "mooncake_master"),
        [
            f"--rpc_port={MASTER_PORT}",
            "--enable_offload=true",
            # So that little data is enough to push objects out of memory.
            f"--default_kv_lease_ttl={LEASE * 1000:.0f}",
            "--eviction_high_watermark_ratio=0.30",
            "--eviction_ratio=0.5",
            "--metrics_port=9003",
            "--logtostderr",
        ],
        f"{folder}/master.log",
    )
    master.wait_for("(?i)(listen|start)")
    return master


def start_client(folder):
    storage = pathlib.Path(folder) / "storage"
    storage.mkdir(exist_ok=True)
    client = Process(
        client_program(),
        [
            f"--master_server_address=127.0.0.1:{MASTER_PORT}",
            "--metadata_server=P2PHANDSHAKE",
            "--host=127.0.0.1",
            f"--port={CLIENT_PORT}",
            "--protocol=tcp",
            f"--global_segment_size={SEGMENT_BYTES >> 20} MB",
            "--enable_offload=true",
            "--logtostderr",
        ],
        f"{folder}/client.log",
        {
            "MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR": "nvme_kv_storage_backend",
            "MOONCAKE_OFFLOAD_FILE_STORAGE_PATH": str(storage),
            "MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS": "1",
            "MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES": str(64 << 20),
        },
    )
    # What is put before is never offloaded.
    client.wait_for("Starting periodic task")
    return client


class Store:
    """Mooncake's Python store without memory of its own, so that the client holds every object."""

    def __init__(self):
        from mooncake.store import MooncakeDistributedStore

        self.fillers = 0

        self.store = MooncakeDistributedStore()
        status = self.store.setup(
            "127.0.0.1",
            "P2PHANDSHAKE",
            0,
            64 << 20,
            "tcp",
            "",
            f"127.0.0.1:{MASTER_PORT}",
        )
        if status != 0:
            raise RuntimeError(f"the Python store cannot be set up: {status}")

    def put(self, key, payload):
        status = self.store.put(key, payload)
        if status != 0:
            raise RuntimeError(f"put {key}: {status}")

    def get(self, key):
        return self.store.get(key)

    def exists(self, key):
        return self.store.is_exist(key) == 1

    def places(self, key):
        """Where replicas of `key` are: a set of "memory" and "disk"."""
        places = set()
        for replica in self.store.get_replica_desc(key):
            if replica.is_memory_replica():
                places.add("memory")
            if replica.is_local_disk_replica():
                places.add("disk")
        return places

    def wait_until_offloaded(self, keys):
        for key in keys:
            wait(lambda key=key: "disk" in self.places(key), f"{key} was not offloaded")

    def push_out_of_memory(self, keys):
        """Puts other objects until `keys` are on the device only."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            # Asking where a key is gives it a lease, and what has one is not evicted.
            time.sleep(2 * LEASE)
            for _ in range(SEGMENT_BYTES // FILLER_BYTES // 4):
                self.fillers += 1
                # Full memory is what this is about.
                self.store.put(f"filler {self.fillers}", bytes(FILLER_BYTES))
            time.sleep(2 * LEASE)
            places = {key: self.places(key) for key in keys}
            if all(where == {"disk"} for where in places.values()):
                return
        raise TimeoutError(f"not on the device only: {places}")

    def close(self):
        self.store.close()
