"""Ask NVIDIA's driver which CUDA it supports and which GPUs there are, and print that as JSON.

This is a process of its own, because a broken driver may end it.
"""

import ctypes
import json

#: CUdevice_attribute, from cuda.h.
_MAJOR, _MINOR = 75, 76


def main():
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return {"reason": "this machine has no CUDA driver"}
    version, count, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    if cuda.cuDriverGetVersion(ctypes.byref(version)):
        return {"reason": "the CUDA driver does not say its version"}
    driver = [version.value // 1000, version.value % 1000 // 10]
    status = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return {"driver": driver, "reason": f"the CUDA driver shows no GPU (error {status})"}
    capabilities, names = [], []
    for device in range(count.value):
        name = ctypes.create_string_buffer(256)
        cuda.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
        pair = []
        for attribute in (_MAJOR, _MINOR):
            cuda.cuDeviceGetAttribute(ctypes.byref(number), attribute, device)
            pair.append(str(number.value))
        capabilities.append(".".join(pair))
    return {"driver": driver, "capabilities": capabilities, "names": names}


if __name__ == "__main__":
    print(json.dumps(main()))
