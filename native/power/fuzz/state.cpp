// libFuzzer: files that the power daemons keep, as a crash, a full disk or somebody else may have left them: the system
// manager's state, a node manager's fence and originals, the bridge's store and what it has seen. The first byte says
// which, and whether checksums are made to fit.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/fuzz/input.hpp"
#include "power/powerd/bridge/store.hpp"
#include "power/powerd/kept.hpp"
#include "power/powerd/state.hpp"
#include "power/powerd/system.hpp"

namespace {

using namespace sonde::power;
using sonde::fuzz::hold;

constexpr std::int64_t now_ns = 1'800'000'000'000'000'000, boot_ns = 1'000'000'000'000;

/// This process's folder, in memory where there is room.
const std::string& folder() {
  static const std::string made = [] {
    std::string name = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/sonde-fuzz-XXXXXX" : "/tmp/sonde-fuzz-XXXXXX";
    hold(::mkdtemp(name.data()) != nullptr, "there is no folder for files");
    static const std::string kept = name;
    std::atexit([] {
      std::error_code ignored;
      std::filesystem::remove_all(kept, ignored);
    });
    return name;
  }();
  return made;
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
}

// ---- the system manager

std::uint64_t fnv(std::string_view text) {
  std::uint64_t sum = 0xcbf29ce484222325ull;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return sum;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void manager(std::string text, bool mended) {
  if (mended) text += "sum " + std::to_string(fnv(text)) + "\n";
  const std::string path = folder() + "/kept", again = folder() + "/again";
  write_file(path, text);
  auto loaded = load_kept(path, now_ns);
  if (!loaded) return hold(loaded.error(), "power.state");
  hold(loaded->has_value(), "a file that is there is said not to be");
  const Kept& kept = loaded->value();
  hold(std::isnan(kept.budget_w) || (kept.budget_w >= 0 && std::isfinite(kept.budget_w)), "a budget that is none");
  hold(kept.shed_left_s >= 0 && std::isnan(kept.shed_w) == (kept.shed_left_s == 0), "a SHED that is none");
  hold(bool(save(again, kept, now_ns)), "what was read is not written");
  auto once_more = load_kept(again, now_ns);
  hold(once_more && once_more->has_value(), "what was written is not read");
  const Kept& back = once_more->value();
  hold(back.epoch == kept.epoch && back.budget_version == kept.budget_version && same(back.budget_w, kept.budget_w) &&
           same(back.configured_w, kept.configured_w) && same(back.shed_w, kept.shed_w) &&
           back.lease_s == kept.lease_s && std::abs(back.shed_left_s - kept.shed_left_s) < 1e-3,
       "what is kept changes on its way there and back");
  Manager::Settings settings;
  settings.cluster = "c";
  settings.name = "m";
  settings.budget.power_limit_w = 800;
  settings.nodes.resize(1);
  settings.nodes[0].member = {"n1", 50, 400, 100};
  if (auto made = Manager::open(settings, kept, boot_ns); !made) {
    hold(made.error(), "power.");
  } else {
    (void)(*made)->budget_w();
    (void)(*made)->take();
  }
}

// ---- a node manager

/// CRC-32 as in gzip. That of the core is in libsonde-bus too, and the sanitizer minds what is there twice.
std::string crc(std::string_view text) {
  std::uint32_t sum = 0xffffffffu;
  for (const char c : text) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
  }
  return std::to_string(~sum);
}

std::unique_ptr<NodeState> opened() {
  auto state = NodeState::open(folder(), "n1");
  hold(bool(state), "a state that nobody has cannot be opened");
  return std::move(*state);
}

void fence(std::string_view text, bool mended) {
  constexpr std::size_t slot_bytes = 512;
  std::string file(text);
  if (mended) {
    file.clear();
    for (std::size_t at = 0; at < text.size() && file.size() < 2 * slot_bytes; at += slot_bytes) {
      std::string_view slot = text.substr(at, slot_bytes);
      slot = slot.substr(0, slot.find('\n'));
      std::string line = std::string(slot) + ' ' + crc(slot);
      line.resize(slot_bytes - 1, ' ');
      file += line + '\n';
    }
  }
  const std::string path = folder() + "/node-n1.fence";
  write_file(path, file);
  Fence next;
  {
    const auto state = opened();
    auto found = state->fence();
    if (!found) return hold(found.error(), "power.state");
    hold(found->manager.size() <= file.size(), "a name that is longer than its file");
    next = *found;
    next.epoch += next.epoch < UINT64_MAX;
    next.manager += "\n next";
    if (const auto kept = state->keep(next); !kept) return hold(kept.error(), "power.state");
  }
  if (next.manager.size() > 100) return;  // escaped, it may not fit its slot: no manager is called so
  const auto state = opened();
  auto found = state->fence();
  hold(found && *found == next, "the fence that was kept last is not the one that is found");
}

void originals(std::string text, bool mended) {
  if (mended) {
    if (text.empty() || text.back() != '\n') text += '\n';
    text += "end " + crc(text) + "\n";
  }
  write_file(folder() + "/node-n1.originals", text);
  const auto state = opened();
  auto found = state->originals();
  if (!found) return hold(found.error(), "power.state");
  hold(found->has_value(), "originals that are there are said not to be");
  hold(bool(state->keep(found->value())), "originals are not written");
  auto again = state->originals();
  hold(again && again->has_value() && again->value().size() == found->value().size(),
       "originals that were written are not read");
  for (std::size_t k = 0; k < found->value().size(); ++k) {
    const Original &a = found->value()[k], &b = again->value()[k];
    hold(a.domain == b.domain && a.setting == b.setting && a.value == b.value,
         "originals change on their way there and back");
  }
  hold(bool(state->forget_originals()), "originals are not forgotten");
}

// ---- the bridge

struct Head {
  std::uint32_t mark, topic, origin, payload;
  std::uint64_t number, check;
};

std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return seed ^ seed >> 29;
}

/// With marks and checks that fit, as far as lengths do.
void mend_records(std::string& text) {
  for (std::size_t at = 0; text.size() - at >= sizeof(Head);) {
    Head head;
    std::memcpy(&head, text.data() + at, sizeof head);
    head.mark = head.mark & 1 ? 0x6d716d31 : 0x6d716131;
    head.topic %= 64, head.origin %= 64, head.payload %= 1024;
    head.check = 0;
    const std::size_t body =
        std::min<std::size_t>(head.topic + head.origin + head.payload, text.size() - at - sizeof head);
    head.check = hash({text.data() + at + sizeof head, body},
                      hash({reinterpret_cast<const char*>(&head), sizeof head}, 0xcbf29ce484222325u));
    std::memcpy(text.data() + at, &head, sizeof head);
    at += sizeof head + body;
  }
}

void store(std::string text, bool mended) {
  constexpr std::size_t most_bytes = 4096;
  if (mended) mend_records(text);
  const std::string path = folder() + "/mqtt.store";
  write_file(path, text);
  const auto bytes_of = [](const bridge::Store& store) {
    std::size_t bytes = 0;
    for (const auto& [number, message] : store.waiting())
      bytes += sizeof(Head) + message.topic.size() + message.origin.size() + message.payload.size();
    return bytes;
  };
  std::map<std::uint64_t, bridge::Store::Message> before;
  {
    auto opened = bridge::Store::open(path, most_bytes);
    if (!opened) return hold(opened.error(), "bridge.state");
    bridge::Store& store = **opened;
    hold(store.bytes() == bytes_of(store) && store.bytes() <= text.size(), "a store counts other bytes than it has");
    const std::size_t held = store.waiting().size();
    std::uint64_t number = 0;
    if (const auto put = store.put({"topic", "origin", "payload"}, number); !put) hold(put.error(), "bridge.store_");
    hold(store.waiting().size() == held + (number != 0) && (number == 0 || store.waiting().contains(number)),
         "a message takes another's place");
    if (!store.waiting().empty()) store.acknowledged(store.waiting().begin()->first);
    hold(store.bytes() == bytes_of(store), "a store counts other bytes than it has");
    before = store.waiting();
  }
  auto opened = bridge::Store::open(path, most_bytes);
  hold(bool(opened), "a store that was written is not read");
  const auto& after = (*opened)->waiting();
  hold(after.size() == before.size(), "messages that wait are lost, or come back");
  for (const auto& [number, message] : before) {
    const auto found = after.find(number);
    hold(found != after.end() && found->second.topic == message.topic && found->second.origin == message.origin &&
             found->second.payload == message.payload,
         "a message changes on its way to the disk and back");
  }
}

void seen(std::string_view text, bool mended) {
  const std::string path = folder() + "/mqtt.seen";
  std::string file = mended ? std::string("1esednos") : std::string();  // as it is on the disk
  file += text;
  write_file(path, file);
  for (int life = 0; life < 2; ++life) {
    std::string why;
    const auto opened = bridge::Seen::open(path, why);
    hold(why.empty(), "what was seen is not on the disk");
    for (int k = 0; k < 4; ++k) {
      const std::string origin = "origin " + std::to_string(k);
      hold(!life || opened->known(origin, "topic"), "what was seen is forgotten by the next process");
      opened->remember(origin, "topic");
      hold(opened->known(origin, "topic"), "what was seen is forgotten");
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t n) {
  if (n < 1) return 0;
  const auto text = sonde::fuzz::text_of(bytes + 1, n - 1);
  const bool mended = bytes[0] & 8;
  switch (bytes[0] % 8) {
    case 0: manager(std::string(text), mended); break;
    case 1: fence(text, mended); break;
    case 2: originals(std::string(text), mended); break;
    case 3: store(std::string(text), mended); break;
    case 4: seen(text, mended); break;
    default: break;
  }
  return 0;
}
