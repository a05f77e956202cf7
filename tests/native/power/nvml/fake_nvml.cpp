// As much of libnvidia-ml.so.1 as Sonde asks for: two GPUs that draw 250 W where they may, and count what they draw.
#include <ctime>

#include <cstdio>
#include <cstring>

#include "fake_nvml.hpp"

namespace {

FakeGpu gpus[2];
double last_s = 0;
int opened = 0;

double now_s() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
unsigned drawn(const FakeGpu& g) { return g.demand_mw < g.limit_mw ? g.demand_mw : g.limit_mw; }
void pass() {
  const double now = now_s();
  for (auto& g : gpus)
    if (last_s > 0) g.energy_mj += drawn(g) * (now - last_s);
  last_s = now;
}
FakeGpu& of(void* device) { return *static_cast<FakeGpu*>(device); }

}  // namespace

extern "C" {

FakeGpu* fake_nvml_gpu(unsigned k) { return &gpus[k]; }
int fake_nvml_opened() { return opened; }

int nvmlInit_v2() { return ++opened, pass(), 0; }
int nvmlShutdown() { return --opened, 0; }
const char* nvmlErrorString(int code) {
  return code == 4    ? "Insufficient Permissions"
         : code == 15 ? "GPU is lost"
         : code == 3  ? "Not Supported"
                      : "Unknown Error";
}
int nvmlDeviceGetCount_v2(unsigned* many) { return *many = 2, 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned k, void** device) { return *device = &gpus[k], 0; }
int nvmlDeviceGetName(void*, char* name, unsigned length) { return std::snprintf(name, length, "Fake GPU"), 0; }
int nvmlDeviceGetPowerUsage(void* device, unsigned* mw) {
  pass();
  if (of(device).power_code) return of(device).power_code;
  return *mw = drawn(of(device)), 0;
}
int nvmlDeviceGetPowerManagementLimit(void* device, unsigned* mw) { return *mw = of(device).limit_mw, 0; }
int nvmlDeviceGetPowerManagementLimitConstraints(void* device, unsigned* low, unsigned* high) {
  if (of(device).limits_code) return of(device).limits_code;
  return *low = 100'000, *high = 350'000, 0;
}
int nvmlDeviceSetPowerManagementLimit(void* device, unsigned mw) {
  pass();
  if (of(device).set_code) return of(device).set_code;
  return of(device).limit_mw = mw, 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* mj) {
  if (of(device).energy_code) return of(device).energy_code;
  pass();
  return *mj = static_cast<unsigned long long>(of(device).energy_mj), 0;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return *celsius = 55, 0; }
int nvmlDeviceGetFanSpeed(void*, unsigned*) { return 3; }
int nvmlDeviceGetUtilizationRates(void*, unsigned* rates) { return rates[0] = 40, rates[1] = 10, 0; }
}
