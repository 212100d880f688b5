"""Puts objects into Mooncake, lets it offload and evict them, and gets them again.

usage: whole_system.py FOLDER

Prints a table, one line for each size: put (and get), exists, get after eviction, get after a restart
of the client, which ends what is in memory, and get after a restart of both client and master.
"same" is byte for byte. Exit status 0 when every cell says "same" or "yes". The NVMe KV settings
come from the environment, as Mooncake's do. RESTARTS=0 leaves the restarts out.
"""

import os
import random
import sys

import system

SIZES = (4096, 65536, 1048576, 1000000, 524388)


def payload(size):
    return random.Random(size).randbytes(size)


def compare(store, key, size):
    found = store.get(key)
    if found == payload(size):
        return "same"
    return f"{len(found)} bytes, not the same"


def after_restart(store, key, size):
    if not store.exists(key):
        return "gone"
    return compare(store, key, size)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    keys = {size: f"object {size}" for size in SIZES}
    rows = {size: {} for size in SIZES}
    processes = []
    try:
        master = system.start_master(folder)
        processes.append(master)
        client = system.start_client(folder)
        processes.append(client)
        store = system.Store()
        for size, key in keys.items():
            store.put(key, payload(size))
            rows[size]["put"] = compare(store, key, size)
        store.wait_until_offloaded(keys.values())
        store.push_out_of_memory(keys.values())
        for size, key in keys.items():
            rows[size]["exists"] = "yes" if store.exists(key) else "no"
            rows[size]["evicted"] = compare(store, key, size)

        if os.environ.get("RESTARTS") != "0":
            client.stop()
            # Until then the master keeps to the places that the old client had reported.
            master.wait_for("action=client_expired")
            processes[1] = client = system.start_client(folder)
            for size, key in keys.items():
                rows[size]["client restarted"] = after_restart(store, key, size)
            store.close()
            client.stop()
            master.stop()
            processes[0] = master = system.start_master(folder)
            processes[1] = client = system.start_client(folder)
            store = system.Store()
            for size, key in keys.items():
                rows[size]["master restarted"] = after_restart(store, key, size)
        store.close()
    finally:
        for process in reversed(processes):
            process.stop()

    columns = list(rows[SIZES[0]])
    print("size".rjust(9), *(column.ljust(17) for column in columns))
    for size, row in rows.items():
        print(str(size).rjust(9), *(row[column].ljust(17) for column in columns))
    wrong = [(size, column) for size, row in rows.items() for column in columns if row[column] not in ("same", "yes")]
    return 1 if wrong else 0


sys.exit(main())
