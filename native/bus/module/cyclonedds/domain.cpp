#include "bus/module/cyclonedds/domain.hpp"

#include <dds/ddsrt/log.h>

#include <map>
#include <mutex>

#include "bus/module/cyclonedds/tcp_port.hpp"

namespace sonde::bus::cyclonedds {

namespace {

constexpr std::size_t words_most = 600;

std::string& words() {
  thread_local std::string said;
  return said;
}

void keep_words(void*, const dds_log_data_t* line) {
  std::string& said = words();
  std::string_view text(line->message, line->size);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  if (text.empty() || said.size() + text.size() > words_most) return;
  if (!said.empty()) said += "; ";
  for (const char c : text) said += c == '\n' ? ' ' : c;  // OpenSSL's errors come in lines
}

struct Open {
  std::string config;
  dds_entity_t entity = 0;
  std::size_t shares = 0;
  TcpPort port;
};

struct Domains {
  std::mutex mutex;
  std::map<std::uint32_t, Open> by_id;
};

/// Never destroyed: a program may close its last bus while it exits.
Domains& domains() {
  static auto* all = new Domains;
  return *all;
}

}  // namespace

std::string last_words() { return std::exchange(words(), {}); }

Error failed(const std::string& what, dds_return_t number, const std::string& hint) {
  const std::string said = last_words();
  return {"bus.open", what + ": Cyclone DDS says " + dds_strretcode(number) + (said.empty() ? "" : " (" + said + ")"), hint};
}

Result<std::unique_ptr<Domain>> Domain::get(std::uint32_t id, const DomainConfig& config) {
  Domains& all = domains();
  const std::lock_guard lock(all.mutex);
  static const bool kept = (dds_set_log_mask(DDS_LC_FATAL | DDS_LC_ERROR | DDS_LC_WARNING), dds_set_log_sink(keep_words, nullptr), true);
  (void)kept;
  if (const auto there = all.by_id.find(id); there != all.by_id.end()) {
    if (there->second.config == config.text) {
      ++there->second.shares;
      return std::unique_ptr<Domain>(new Domain(id, there->second.port.number()));
    }
    return Error{"bus.open",
                 "this process is in domain " + std::to_string(id) +
                     " of Cyclone DDS already, with other transports or another discovery: both share the sockets of the process",
                 "use one profile for all buses of a process in one domain, or another domain"};
  }
  Open made{config.text, 0, 1, {}};
  std::string text = config.text;
  if (!config.ports.empty()) {
    auto port = TcpPort::claim(config.ports);
    if (!port) return port.error();
    made.port = std::move(*port);
    // Cyclone 0.10 would connect to itself, and leave both ends' descriptors open when the domain is closed.
    for (const std::string& begin : config.own_peers) {
      const std::string own = begin + std::to_string(made.port.number()) + std::string(peer_end);
      const auto at = text.find(own);
      if (at == text.npos) continue;
      text.erase(at, own.size());
      // Without any peer it would look for itself at ports of its own choice: so it looks for one more of its kind, where none is.
      if (text.find("<Peer ") == text.npos) text.insert(at, begin + std::to_string(made.port.number() + 2) + std::string(peer_end));
    }
    if (const auto mark = text.find(port_mark); mark != text.npos) text.replace(mark, port_mark.size(), std::to_string(made.port.number()));
  }
  last_words();
  const dds_entity_t entity = dds_create_domain(id, text.c_str());
  if (entity == DDS_RETCODE_PRECONDITION_NOT_MET)
    return Error{"bus.open",
                 "this process is in domain " + std::to_string(id) + " of Cyclone DDS already, not by Sonde: its configuration would be another",
                 "open the bus before, or use another domain"};
  if (entity < 0)
    return failed("domain " + std::to_string(id) + " could not be opened", entity,
                  "look whether the interfaces are up, and whether more than 120 processes of this machine are in the domain");
  made.entity = entity;
  const std::uint16_t port = made.port.number();
  all.by_id[id] = std::move(made);
  return std::unique_ptr<Domain>(new Domain(id, port));
}

Domain::~Domain() {
  Domains& all = domains();
  const std::lock_guard lock(all.mutex);
  const auto mine = all.by_id.find(id_);
  if (--mine->second.shares) return;
  dds_delete(mine->second.entity);
  all.by_id.erase(mine);
}

}  // namespace sonde::bus::cyclonedds
