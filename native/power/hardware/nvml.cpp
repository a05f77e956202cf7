// NVIDIA GPUs, through libnvidia-ml.so.1. The driver contains this library. It is loaded on demand, so that the build
// needs no header of NVIDIA.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.hpp"
#include "core/number.hpp"
#include "core/shared_object.hpp"
#include "core/text.hpp"
#include "power/hardware/kinds.hpp"

namespace sonde::power::kinds {

namespace {

constexpr const char* library_name = "libnvidia-ml.so.1";
/// The return codes of NVML that are handled here.
constexpr int ok = 0, not_supported = 3, no_permission = 4, gpu_is_lost = 15;

/// Units: milliwatts, millijoules, degrees Celsius. Handles belong to NVML.
struct Nvml {
  using Device = void*;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, Device*) = nullptr;
  int (*name)(Device, char*, unsigned) = nullptr;
  int (*power)(Device, unsigned*) = nullptr;
  int (*limit)(Device, unsigned*) = nullptr;
  int (*limits)(Device, unsigned*, unsigned*) = nullptr;
  int (*set_limit)(Device, unsigned) = nullptr;
  int (*energy)(Device, unsigned long long*) = nullptr;  // since Volta
  int (*temperature)(Device, int, unsigned*) = nullptr;
  int (*fan)(Device, unsigned*) = nullptr;  // percent of the highest speed
  int (*utilization)(Device,
                     unsigned*) = nullptr;  // two values: percent of the time in which the GPU and its memory were used
};

template <typename F> bool bind(void* library, const char* symbol, F& out) {
  out = reinterpret_cast<F>(::dlsym(library, symbol));
  return out != nullptr;
}

Result<Nvml> load() {
  auto library = open_shared_object(library_name);
  if (!library)
    return Error{"power.no_hardware", std::string("NVML cannot be loaded: ") + library.error().what,
                 "install NVIDIA's driver, which contains it"};
  Nvml out;
  const bool whole =
      bind(*library, "nvmlInit_v2", out.init) && bind(*library, "nvmlShutdown", out.shutdown) &&
      bind(*library, "nvmlErrorString", out.error_string) && bind(*library, "nvmlDeviceGetCount_v2", out.count) &&
      bind(*library, "nvmlDeviceGetHandleByIndex_v2", out.handle) && bind(*library, "nvmlDeviceGetName", out.name) &&
      bind(*library, "nvmlDeviceGetPowerUsage", out.power) &&
      bind(*library, "nvmlDeviceGetPowerManagementLimit", out.limit) &&
      bind(*library, "nvmlDeviceGetPowerManagementLimitConstraints", out.limits) &&
      bind(*library, "nvmlDeviceSetPowerManagementLimit", out.set_limit);
  if (!whole)
    return Error{"power.no_hardware", std::string(library_name) + " lacks functions of NVML",
                 "install a newer NVIDIA driver"};
  bind(*library, "nvmlDeviceGetTotalEnergyConsumption", out.energy);
  bind(*library, "nvmlDeviceGetTemperature", out.temperature);
  bind(*library, "nvmlDeviceGetFanSpeed", out.fan);
  bind(*library, "nvmlDeviceGetUtilizationRates", out.utilization);
  return out;
}

class Gpus final : public Hardware {
 public:
  explicit Gpus(const Nvml& nvml) : nvml_(nvml) {}
  ~Gpus() override { nvml_.shutdown(); }

  Result<void> find(const HardwareSpec& spec) {
    unsigned many = 0;
    if (const int code = nvml_.count(&many); code != ok) return failed("GPUs cannot be counted", code);
    if (!many) return Error{"power.no_hardware", "NVML sees no GPU", "check with: nvidia-smi -L"};
    std::vector<Gpu> all;
    std::vector<std::string> names;
    for (unsigned k = 0; k < many && k < 1024; ++k) {
      Gpu gpu;
      names.push_back("gpu-" + std::to_string(k));
      if (const int code = nvml_.handle(k, &gpu.device); code != ok) return failed(names.back(), code);
      all.push_back(gpu);
    }
    auto taken = chosen(spec.domains, names, [](const std::string&) { return true; });
    if (!taken) return taken.error();
    for (const auto k : *taken) {
      auto gpu = all[k];
      Range range;
      unsigned low = 0, high = 0, now = 0;
      const int code = nvml_.limits(gpu.device, &low, &high);
      if (code == ok && high > 0) {
        range = {low * 1e-3, high * 1e-3, true, ""};
      } else {
        range.why_not = code == ok
                            ? "NVML reports no limits"
                            : std::string("nvmlDeviceGetPowerManagementLimitConstraints: ") + nvml_.error_string(code);
      }
      gpu.limited = nvml_.limit(gpu.device, &now) == ok;
      gpu.range = narrowed(range, spec);
      gpus_.push_back(gpu);
      names_.push_back(names[k]);
    }
    char model[96] = "";
    model_ = nvml_.name(gpus_.front().device, model, sizeof model) == ok ? shown_name(model) : "NVIDIA GPU";
    return {};
  }

  Source source() const override { return Source::nvml; }
  const std::string& model() const override { return model_; }
  const std::vector<std::string>& domains() const override { return names_; }
  Range range(std::size_t domain) const override { return domain < gpus_.size() ? gpus_[domain].range : Range{}; }

  Result<std::vector<DomainReading>> read() override {
    std::vector<DomainReading> out;
    std::optional<Error> first;
    bool any = false;
    for (std::size_t k = 0; k < gpus_.size(); ++k) {
      auto& gpu = gpus_[k];
      DomainReading one;
      unsigned mw = 0, limit = 0;
      const int code = nvml_.power(gpu.device, &mw);
      if (code == ok) {
        any = true;
        one.power_w = mw * 1e-3;
        count(gpu, one.power_w);
      } else {
        const Error e = failed(names_[k], code);
        one.trouble = told(e);
        if (!first) first = e;
      }
      one.energy_j = gpu.energy_j;
      if (gpu.limited || gpu.range.settable) {
        // A missing cap without trouble would mean that the cap was switched off.
        if (const int is = nvml_.limit(gpu.device, &limit); is == ok) one.cap_w = limit * 1e-3;
        else if (one.trouble.empty()) one.trouble = told(failed(names_[k], is));
      }
      out.push_back(std::move(one));
    }
    if (!any && first) return *first;
    return out;
  }

  Result<double> cap(std::size_t domain, double cap_w) override {
    if (domain >= gpus_.size())
      return Error{"power.unknown_domain", "there is no domain " + std::to_string(domain), ""};
    auto& gpu = gpus_[domain];
    if (const auto may = may_set(gpu.range, names_[domain], cap_w); !may) return may.error();
    if (const int code = nvml_.set_limit(gpu.device, static_cast<unsigned>(std::llround(cap_w * 1e3))); code != ok)
      return failed(names_[domain], code);
    unsigned now = 0;
    if (const int code = nvml_.limit(gpu.device, &now); code != ok) return failed(names_[domain], code);
    return now * 1e-3;
  }

  Result<std::vector<Sensor>> sensors() override {
    std::vector<Sensor> out;
    for (std::size_t k = 0; k < gpus_.size(); ++k) {
      unsigned value = 0;
      std::array<unsigned, 2> used{};
      if (nvml_.temperature && nvml_.temperature(gpus_[k].device, 0, &value) == ok)
        out.push_back({names_[k], SensorKind::temperature, static_cast<double>(value)});
      if (nvml_.utilization && nvml_.utilization(gpus_[k].device, used.data()) == ok)
        out.push_back({names_[k], SensorKind::utilisation, used[0] * 1e-2});
      if (nvml_.fan && nvml_.fan(gpus_[k].device, &value) == ok)
        out.push_back({names_[k] + " fan", SensorKind::utilisation, value * 1e-2});
    }
    return out;
  }

  Result<std::vector<Original>> originals() override {
    std::vector<Original> out;
    for (std::size_t k = 0; k < gpus_.size(); ++k) {
      if (!gpus_[k].range.settable) continue;
      unsigned now = 0;
      if (const int code = nvml_.limit(gpus_[k].device, &now); code != ok) return failed(names_[k], code);
      out.push_back({names_[k], "power_limit_mw", std::to_string(now)});
    }
    return out;
  }

  Result<void> restore(const std::vector<Original>& originals) override {
    std::optional<Error> first;
    for (const auto& one : originals) {
      const auto at = static_cast<std::size_t>(std::find(names_.begin(), names_.end(), one.domain) - names_.begin());
      unsigned value = 0;
      std::optional<Error> wrong;
      if (at == names_.size()) wrong = Error{"power.unknown_domain", one.domain + " does not exist any more", ""};
      else if (one.setting != "power_limit_mw" || !number(one.value, value))
        wrong = Error{"power.bad_original",
                      one.domain + " has no setting " + shown(one.setting) + " that can be " + shown(one.value), ""};
      else if (const int code = nvml_.set_limit(gpus_[at].device, value); code != ok) wrong = failed(one.domain, code);
      if (wrong && !first) first = wrong;
    }
    if (first) return *first;
    return {};
  }

 private:
  struct Gpu {
    Nvml::Device device = nullptr;
    Range range;
    bool limited = false;
    bool begun = false, counted = false;  // begun: there is a sample; counted: the last one had the counter
    unsigned long long last_mj = 0;
    std::int64_t last_ns = 0;
    double last_w = 0, energy_j = 0;
  };

  static std::string shown_name(const char* name) {
    const std::string quoted = shown(name, 90);
    return quoted.size() >= 2 ? quoted.substr(1, quoted.size() - 2) : quoted;
  }

  Error failed(const std::string& what, int code) const {
    const std::string said = what + ": " + nvml_.error_string(code);
    if (code == gpu_is_lost)
      return {"power.hardware_gone", said, "'dmesg' shows the reason; a restart of the machine brings the GPU back"};
    if (code == no_permission) return {"power.read_only", said, "run it as root"};
    if (code == not_supported) return {"power.read_only", said, "this GPU cannot do it"};
    return {"power.hardware_failed", said, ""};
  }

  /// Adds energy: from the GPU's counter if it has one, else from the power of two readings.
  void count(Gpu& gpu, double power_w) const {
    unsigned long long mj = 0;
    const std::int64_t now = now_ns();
    const bool counted = nvml_.energy && nvml_.energy(gpu.device, &mj) == ok;
    if (gpu.begun) {
      // The counter restarts from 0 when the driver is loaded again.
      if (counted && gpu.counted) gpu.energy_j += static_cast<double>(mj >= gpu.last_mj ? mj - gpu.last_mj : mj) * 1e-3;
      else gpu.energy_j += (gpu.last_w + power_w) / 2 * static_cast<double>(now - gpu.last_ns) * 1e-9;
    }
    gpu.begun = true;
    gpu.counted = counted;
    gpu.last_mj = mj;
    gpu.last_ns = now;
    gpu.last_w = power_w;
  }

  Nvml nvml_;
  std::string model_;
  std::vector<std::string> names_;
  std::vector<Gpu> gpus_;
};

}  // namespace

const char* nvml_missing() {
  return open_shared_object(library_name) ? "" : "NVIDIA's driver, which contains libnvidia-ml.so.1";
}

Opened open_nvml(const HardwareSpec& spec) {
  auto nvml = load();
  if (!nvml) return nvml.error();
  if (const int code = nvml->init(); code != ok)
    return Error{"power.no_hardware", std::string("NVML: ") + nvml->error_string(code), "'nvidia-smi' shows more"};
  auto gpus = std::make_unique<Gpus>(*nvml);
  if (const auto found = gpus->find(spec); !found) return found.error();
  return Opened(std::move(gpus));
}

}  // namespace sonde::power::kinds
