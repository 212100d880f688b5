"""The library's C interface through ctypes, as far as the tests of this folder need it."""

import ctypes
import os

OK = 0


class Slice(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Object(ctypes.Structure):
    """mnkv_object, and mnkv_destination, which has the same shape."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("key", ctypes.c_char_p),
        ("key_size", ctypes.c_size_t),
        ("slices", ctypes.POINTER(Slice)),
        ("slice_count", ctypes.c_size_t),
    ]


class Config(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_size_t), ("device_path", ctypes.c_char_p)]
        + [(name, ctypes.c_uint32) for name in ("nsid", "queue_depth", "limit", "transport")]
    )


KeyFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _object(key: bytes, buffer) -> Object:
    part = Slice(ctypes.cast(buffer, ctypes.c_void_p), len(buffer))
    return Object(ctypes.sizeof(Object), key, len(key), ctypes.pointer(part), 1)


def _library():
    library = ctypes.CDLL(os.environ["MNKV_LIBRARY"])
    library.mnkv_last_open_error.restype = ctypes.c_size_t
    return library


def _why(library) -> str:
    text = ctypes.create_string_buffer(4096)
    library.mnkv_last_open_error(text, ctypes.c_size_t(len(text)))
    return text.value.decode()


class Backend:
    """The backend of the environment's namespace."""

    def __enter__(self):
        self.library = _library()
        self.handle = ctypes.c_void_p()
        self._check(self.library.mnkv_backend_open_from_environment(ctypes.byref(self.handle)))
        return self

    def __exit__(self, *_):
        self._check(self.library.mnkv_backend_close(self.handle))

    def store(self, key: bytes, payload: bytes) -> None:
        buffer = (ctypes.c_char * len(payload)).from_buffer_copy(payload)
        item = _object(key, buffer)
        self._check(
            self.library.mnkv_backend_offload(
                self.handle, ctypes.byref(item), ctypes.c_size_t(1), None, None, None, None
            )
        )

    def load(self, key: bytes, size: int) -> bytes:
        buffer = (ctypes.c_char * size)()
        item = _object(key, buffer)
        self._check(
            self.library.mnkv_backend_load(
                self.handle, ctypes.byref(item), ctypes.c_size_t(1), None
            )
        )
        return bytes(buffer)

    def exists(self, key: bytes) -> bool:
        answer = ctypes.c_bool()
        self._check(
            self.library.mnkv_backend_exists(
                self.handle, key, ctypes.c_size_t(len(key)), ctypes.byref(answer)
            )
        )
        return answer.value

    def _check(self, status: int) -> None:
        if status != OK:
            raise OSError(status, _why(self.library))


def erase() -> int:
    """Deletes every key of the environment's namespace; returns how many there were."""
    library = _library()
    config = Config(ctypes.sizeof(Config), os.environ["MOONCAKE_NVME_KV_DEVICE_PATH"].encode())
    transports = {"io_uring": 1, "ioctl": 2, "emulated": 3}
    config.transport = transports.get(os.environ.get("MOONCAKE_NVME_KV_TRANSPORT", ""), 0)
    device = ctypes.c_void_p()
    if library.mnkv_device_open(ctypes.byref(config), ctypes.byref(device)) != OK:
        raise OSError(_why(library))
    erased = 0
    while True:
        keys: list[bytes] = []

        @KeyFunction
        def on_key(_, key, size):
            keys.append(ctypes.string_at(key, size))
            return OK

        if library.mnkv_device_list(device, None, ctypes.c_size_t(0), on_key, None) != OK:
            raise OSError(_why(library))
        if not keys:
            break
        for key in keys:
            if library.mnkv_device_delete(device, key) != OK:
                raise OSError(_why(library))
        erased += len(keys)
    library.mnkv_device_close(device)
    return erased
