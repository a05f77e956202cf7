#include "bus/module/fastdds/words.hpp"

#include <fastdds/dds/log/Log.hpp>

#include <deque>
#include <memory>
#include <mutex>

namespace sonde::bus::fastdds {

namespace {

using eprosima::fastdds::dds::Log;

struct Kept {
  std::mutex mutex;
  std::deque<std::string> lines;
};

Kept& kept() {
  static Kept* const one = new Kept;  // Fast DDS's log thread may outlive main()
  return *one;
}

class Keeper final : public eprosima::fastdds::dds::LogConsumer {
  void Consume(const Log::Entry& entry) override {
    if (entry.kind != Log::Kind::Error) return;
    constexpr std::size_t most = 4;
    Kept& all = kept();
    const std::lock_guard lock(all.mutex);
    if (!all.lines.empty() && all.lines.back() == entry.message) return;
    all.lines.push_back(entry.message);
    if (all.lines.size() > most) all.lines.pop_front();
  }
};

}  // namespace

void keep_words() {
  static const bool once = [] {
    Log::ClearConsumers();
    Log::RegisterConsumer(std::make_unique<Keeper>());
    Log::SetVerbosity(Log::Kind::Error);
    return true;
  }();
  (void)once;
}

std::string last_words() {
  Log::Flush();
  Kept& all = kept();
  const std::lock_guard lock(all.mutex);
  std::string out;
  for (const std::string& line : all.lines) out += (out.empty() ? "" : "; ") + line;
  all.lines.clear();
  return out;
}

}  // namespace sonde::bus::fastdds
