"""A stand-in for NVIDIA's management library, compiled from C: it has the library's functions and structures,
and says about GPUs what a file says. It is found as the real one is, by the dynamic linker.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import compiled_library

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { char busIdLegacy[16]; unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
                 char busId[32]; } nvmlPciInfo_t;
typedef struct { unsigned int pid; unsigned long long usedGpuMemory;
                 unsigned int gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
struct gpu { unsigned long long used, total, held; unsigned int milliwatts, busy, pid; char name[64]; };
static struct gpu gpus[8];
static unsigned int count;

int nvmlInit_v2(void) { return getenv("OARLOCK_TEST_NVML") ? 0 : 9; }
int nvmlDeviceGetCount_v2(unsigned int *found) {
    FILE *file = fopen(getenv("OARLOCK_TEST_NVML"), "r");
    count = 0;
    while (file && count < 8) {
        struct gpu *g = &gpus[count];
        if (fscanf(file, "%llu %llu %u %u %u %llu %63[^\n]", &g->used, &g->total, &g->milliwatts, &g->busy,
                   &g->pid, &g->held, g->name) != 7) break;
        count++;
    }
    if (file) fclose(file);
    *found = count;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int at, struct gpu **device) {
    *device = &gpus[at];
    return at < count ? 0 : 2;
}
int nvmlDeviceGetMemoryInfo(struct gpu *g, nvmlMemory_t *m) {
    m->total = g->total; m->used = g->used; m->free = g->total - g->used;
    return 0;
}
int nvmlDeviceGetUUID(struct gpu *g, char *text, unsigned int size) {
    snprintf(text, size, "GPU-%da5d31ab-ecb1", (int)(g - gpus));
    return 0;
}
int nvmlDeviceGetName(struct gpu *g, char *text, unsigned int size) {
    snprintf(text, size, "%s", g->name);
    return 0;
}
int nvmlDeviceGetPciInfo_v3(struct gpu *g, nvmlPciInfo_t *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, 32, "00000000:%02X:00.0", 0x3b + (int)(g - gpus));
    return 0;
}
int nvmlDeviceGetPowerUsage(struct gpu *g, unsigned int *power) {
    *power = g->milliwatts;
    return g->milliwatts ? 0 : 3;  /* not supported */
}
int nvmlDeviceGetComputeMode(struct gpu *g, unsigned int *mode) {
    *mode = strstr(g->name, "exclusive") ? 3 : 0;
    return 0;
}
int nvmlDeviceGetUtilizationRates(struct gpu *g, nvmlUtilization_t *rates) { rates->gpu = g->busy; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *g, unsigned int *found, nvmlProcessInfo_t *list) {
    *found = g->pid ? 1 : 0;
    if (g->pid) { memset(list, 0, sizeof *list); list->pid = g->pid; list->usedGpuMemory = g->held; }
    return 0;
}
"""


class NvmlLibrary:
    """The GPUs that it tells of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "gpus"

    @property
    def env(self) -> Mapping[str, str]:
        """The variables for a process that is to find it."""
        return {**compiled_library.search_path(self.folder), "OARLOCK_TEST_NVML": str(self._file)}

    def say(self, *gpus: tuple[int, int, int, int, int, int, str]) -> None:
        """Each: memory in use and in all, milliwatts, percent, a process (0: none) and its memory, name.

        One whose name ends in `exclusive` has that compute mode.
        """
        written = self._file.with_suffix(".new")
        written.write_text("".join(" ".join(map(str, gpu)) + "\n" for gpu in gpus))
        written.replace(self._file)


@pytest.fixture
def nvml_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlLibrary:
    """The library in a folder of its own, for processes that the test starts."""
    library = NvmlLibrary(compiled_library.build(tmp_path, "libnvidia-ml.so.1", SOURCE))
    for name, value in library.env.items():
        monkeypatch.setenv(name, value)
    return library
