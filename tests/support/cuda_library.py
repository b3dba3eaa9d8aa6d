"""A stand-in for NVIDIA's CUDA driver: it opens contexts on two GPUs, unless a file forbids it, and notes
what it does in another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import compiled_library

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int initialized, opened[2];

static void note(const char *what) {
    FILE *file = fopen(getenv("OARLOCK_TEST_CUDA_CALLS"), "a");
    fprintf(file, "%s\n", what);
    fclose(file);
}
int cuInit(unsigned int flags) {
    if (!initialized) note("started");
    initialized = 1;
    return 0;
}
int cuDeviceGetCount(int *count) { *count = 2; return initialized ? 0 : 3; }
int cuDeviceGet(int *device, int number) { *device = number; return number < 2 ? 0 : 101; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    if (access(getenv("OARLOCK_TEST_NO_CUDA"), F_OK) == 0) return 2;  /* out of memory */
    note(device ? "opened 1" : "opened 0");
    opened[device] = 1;
    *context = &opened[device];
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxPushCurrent_v2(void *context) { return 0; }
int cuCtxPopCurrent_v2(void **context) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(void **address, size_t size) {
    *address = malloc(size);
    return getenv("OARLOCK_TEST_FULL_GPU") ? 2 : 0;
}
int cuMemFree_v2(void *address) { note("freed"); free(address); return 0; }
int cuMemsetD8_v2(void *address, unsigned char value, size_t size) { memset(address, value, size); return 0; }
int cuMemcpyDtoH_v2(void *target, void *source, size_t size) {  /* its GPUs' memory is the machine's */
    note("copied");
    memcpy(target, source, size);
    if (getenv("OARLOCK_TEST_WRONG_COPIES")) memset(target, 7, size);
    return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned int *flags, int *active) {
    *flags = 0;
    *active = opened[device];
    return 0;
}
"""


CUBLAS = r"""
#include <stdio.h>
#include <stdlib.h>

int cublasCreate_v2(void **handle) { *handle = malloc(1); return 0; }
int cublasDestroy_v2(void *handle) { free(handle); return 0; }
int cublasGemmEx(void *handle, int ta, int tb, int m, int n, int k,
                 const float *alpha, const char *a, int a_kind, int lda, const char *b, int b_kind, int ldb,
                 const float *beta, char *c, int c_kind, int ldc, int compute, int way) {
    FILE *file = fopen(getenv("OARLOCK_TEST_CUDA_CALLS"), "a");
    int bytes = a_kind == 14 ? 2 : 4, last = bytes * m * n - 1;
    fprintf(file, "multiplied %d %d: %g %d %d %d\n", a_kind, compute, *alpha, a[last] + b[last] + c[last],
            m == n && n == k && k == lda && lda == ldb && ldb == ldc && ta + tb == 0,
            a_kind == b_kind && b_kind == c_kind && *alpha == *beta && way == -1);
    fclose(file);
    return 0;
}
"""


class CudaLibrary:
    """What a process needs to find it."""

    def __init__(self, folder: Path) -> None:
        self._none_left = folder / "no-memory-left"
        self.calls = folder / "calls"
        self.env = {
            **compiled_library.search_path(folder),
            "OARLOCK_TEST_NO_CUDA": str(self._none_left),
            "OARLOCK_TEST_CUDA_CALLS": str(self.calls),
        }

    @property
    def cublas(self) -> Path:
        """The path of a stand-in for cuBLAS, which notes each product; a program has to load it."""
        folder = self.calls.parent
        made = folder / "libcublas"
        return (
            made if made.exists() else compiled_library.build(folder, "libcublas.so.13", CUBLAS)
        ) / "libcublas.so.13"

    def refuse(self) -> None:
        """No GPU has memory for another context from now on."""
        self._none_left.touch()


@pytest.fixture
def cuda_library(tmp_path: Path) -> CudaLibrary:
    return CudaLibrary(compiled_library.build(tmp_path, "libcuda.so.1", SOURCE))
