#pragma once

struct FakeGpu {
  unsigned demand_mw = 250'000, limit_mw = 350'000;
  double energy_mj = 5e6;
  int power_code = 0, set_code = 0, limits_code = 0, energy_code = 0;  ///< what its functions return, where they fail
};
extern "C" {
FakeGpu* fake_nvml_gpu(unsigned k);
int fake_nvml_opened();
}
