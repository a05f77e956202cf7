// sonde-powerd mqtt-bridge: opens a Bridge, reports its state, ends it.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/number.hpp"
#include "power/powerd/bridge/bridge.hpp"
#include "power/powerd/roles.hpp"
#include "power/powerd/tell.hpp"
#include "power/powerd/wiring.hpp"
#include "service/daemon.hpp"
#include "service/http.hpp"

namespace sonde::power {

namespace {

constexpr double counts_every_s = 10, end_within_s = 2;

Result<std::unique_ptr<service::Http>> page(const BridgeConfig& config, std::function<std::string()> metrics) {
  service::HttpConfig http;
  const auto colon = config.metrics.rfind(':');
  http.host = config.metrics.substr(0, colon);
  if (colon == std::string::npos || !number(std::string_view(config.metrics).substr(colon + 1), http.port))
    return Error{"bridge.bad_metrics", "metrics is '" + config.metrics + "'", "write HOST:PORT"};
  if (!config.metrics_token_file.empty()) {
    std::ifstream in(config.metrics_token_file);
    if (!std::getline(in, http.token) || http.token.empty())
      return Error{"bridge.bad_token", config.metrics_token_file + " has no token in its first line",
                   "write one into it"};
  }
  return service::Http::start(http, std::move(metrics));
}

}  // namespace

int run_mqtt_bridge(const Config& config, const Options& options) {
  const std::string name = own_name(options.name, config.bridge.name);
  auto opened = bridge::Bridge::open(config, name);
  if (!opened) return fail(opened.error());
  bridge::Bridge& running = **opened;
  std::unique_ptr<service::Http> http;
  if (!config.bridge.metrics.empty()) {
    auto started = page(config.bridge, [&running] { return running.metrics(); });
    if (!started) return fail(started.error());
    http = std::move(*started);
  }
  std::cout << running.ready() + "\n" << std::flush;
  running.start();
  service::notify("READY=1");

  std::mutex mutex;
  std::condition_variable end;
  bool ending = false;
  std::thread teller([&] {
    std::unique_lock lock(mutex);
    while (!end.wait_for(lock, std::chrono::duration<double>(counts_every_s), [&] { return ending; }))
      std::cout << running.counts("counts") + "\n" << std::flush;
  });
  service::wait_for_end(options.signals, options.with_parent);
  service::notify("STOPPING=1");
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  end.notify_all();
  teller.join();
  event(JsonLine().add("event", "closing"));
  running.stop(end_within_s);
  http.reset();
  std::cout << running.counts("end") + "\n" << std::flush;
  return 0;
}

}  // namespace sonde::power
