/* A stand-in for libnvidia-ml.so.1: what it answers is read, at each call, from files in $FAKE_NVML_DIR.
 *
 * `init`, `count`, and per device D (a GPU's number, or GPU.INSTANCE for a MIG instance): `D.total`, `D.used`,
 * `D.utilization`, `D.temperature`, `D.milliwatts`, `D.uuid`, `D.name`, `D.instances` (MIG is on if not 0),
 * `D.error` (the code that every call on the device returns), `D.handle` (the code that opening it returns). A
 * sensor without a file is not supported.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum { MAX_INSTANCES = 7 };

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned version; int sensor; int temperature; } temperature_v1_t;
typedef struct { int gpu, instance; } device_t; /* instance -1 is the whole GPU */

static device_t devices[64][MAX_INSTANCES + 1];

static int read_text(const char *name, char *text, size_t size) {
    char path[1024];
    const char *folder = getenv("FAKE_NVML_DIR");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", name);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int found = fgets(text, (int)size, file) != NULL;
    fclose(file);
    if (found) text[strcspn(text, "\n")] = 0;
    return found;
}

static int device_text(const device_t *device, const char *key, char *text, size_t size) {
    char name[128];
    if (device->instance < 0) snprintf(name, sizeof name, "%d.%s", device->gpu, key);
    else snprintf(name, sizeof name, "%d.%d.%s", device->gpu, device->instance, key);
    return read_text(name, text, size);
}

static int number(const char *name, int otherwise) {
    char text[64];
    return read_text(name, text, sizeof text) ? atoi(text) : otherwise;
}

static int device_error(const device_t *device) {
    char text[64];
    return device_text(device, "error", text, sizeof text) ? atoi(text) : SUCCESS;
}

static int sensor(const device_t *device, const char *key, unsigned long long *value) {
    char text[64];
    int error = device_error(device);
    if (error) return error;
    if (!device_text(device, key, text, sizeof text)) return NOT_SUPPORTED;
    *value = strtoull(text, NULL, 10);
    return SUCCESS;
}

static int text_of(const device_t *device, const char *key, char *text, unsigned size) {
    int error = device_error(device);
    if (error) return error;
    return device_text(device, key, text, size) ? SUCCESS : NOT_SUPPORTED;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return number("init", SUCCESS); }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { (void)code; return "stand-in error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned size) { snprintf(text, size, "999.1"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)number("count", 0); return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **handle) {
    if (index >= 64 || (int)index >= number("count", 0)) return INVALID_ARGUMENT;
    char name[64];
    snprintf(name, sizeof name, "%u.handle", index);
    *handle = &devices[index][MAX_INSTANCES];
    **handle = (device_t){(int)index, -1};
    return number(name, SUCCESS);
}

int nvmlDeviceGetMigMode(device_t *device, unsigned *current, unsigned *pending) {
    unsigned long long instances;
    int error = sensor(device, "instances", &instances);
    if (error) return error;
    *current = *pending = instances > 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t *device, unsigned *count) {
    (void)device;
    *count = MAX_INSTANCES;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t *device, unsigned index, device_t **handle) {
    unsigned long long instances = 0;
    int error = sensor(device, "instances", &instances);
    if (error) return error;
    if (index >= instances || index >= MAX_INSTANCES) return NOT_FOUND;
    *handle = &devices[device->gpu][index];
    **handle = (device_t){device->gpu, (int)index};
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *memory) {
    int error = sensor(device, "total", &memory->total);
    if (!error) error = sensor(device, "used", &memory->used);
    memory->free = memory->total - memory->used;
    return error;
}

int nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *utilization) {
    unsigned long long value;
    int error = sensor(device, "utilization", &value);
    if (!error) *utilization = (utilization_t){(unsigned)value, 0};
    return error;
}

int nvmlDeviceGetTemperature(device_t *device, int kind, unsigned *temperature) {
    unsigned long long value;
    (void)kind;
    int error = sensor(device, "temperature", &value);
    if (!error) *temperature = (unsigned)value;
    return error;
}

#ifndef OLD_DRIVER /* drivers before 570 do not have it */
int nvmlDeviceGetTemperatureV(device_t *device, temperature_v1_t *temperature) {
    unsigned value;
    int error = nvmlDeviceGetTemperature(device, temperature->sensor, &value);
    if (!error) temperature->temperature = (int)value;
    return error;
}
#endif

int nvmlDeviceGetPowerUsage(device_t *device, unsigned *milliwatts) {
    unsigned long long value;
    int error = sensor(device, "milliwatts", &value);
    if (!error) *milliwatts = (unsigned)value;
    return error;
}

int nvmlDeviceGetUUID(device_t *device, char *text, unsigned size) { return text_of(device, "uuid", text, size); }
int nvmlDeviceGetName(device_t *device, char *text, unsigned size) { return text_of(device, "name", text, size); }
