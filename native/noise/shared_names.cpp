#include "noise/shared_names.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>

namespace sonde::noise {

namespace {

constexpr std::string_view folder = "/dev/shm/";
constexpr std::size_t maps_bytes = std::size_t{1} << 24;  // by default the kernel allows a process 65530 mappings

std::set<std::string> mapped_by(const std::string& process) {
  return shared_names_in(read_text("/proc/" + process + "/maps", maps_bytes).value_or(""));
}

template <typename Use> void each_name(const char* path, Use&& use) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(path), &::closedir);
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir.get())) use(std::string(entry->d_name));
}

}  // namespace

std::set<std::string> shared_names_in(const std::string& maps) {
  constexpr std::string_view deleted = " (deleted)";
  std::set<std::string> out;
  std::size_t at = 0;
  while (at < maps.size()) {
    const std::size_t end = std::min(maps.find('\n', at), maps.size());
    const std::string_view line(maps.data() + at, end - at);
    at = end + 1;
    const std::size_t name = line.find(folder);
    if (name == std::string_view::npos || line.ends_with(deleted)) continue;
    out.emplace(line.substr(name + folder.size()));
  }
  return out;
}

void SharedNames::begin() {
  before_.clear();
  mapped_.clear();
  each_name(std::string(folder).c_str(), [&](std::string name) { before_.insert(std::move(name)); });
}

void SharedNames::look(const std::vector<Process>& agent) {
  for (const auto& process : agent)
    for (const auto& name : mapped_by(std::to_string(process.pid)))
      if (!before_.contains(name)) mapped_.insert(name);
}

void SharedNames::remove() {
  if (mapped_.empty()) return;
  each_name("/proc", [&](const std::string& process) {
    if (std::isdigit(static_cast<unsigned char>(process[0])) == 0) return;
    for (const auto& name : mapped_by(process)) mapped_.erase(name);
  });
  for (const auto& name : mapped_) ::unlink((std::string(folder) + name).c_str());
  mapped_.clear();
}

}  // namespace sonde::noise
