#pragma once
/// The audit log: the sender of each order, the values before and after, and the result. One JSON object a line. A
/// change of the cluster's control is on disk before its result is reported. Owner-thread.
///
///   {"at":"2026-11-23T12:00:00.123Z","manager":"m1","epoch":3,"what":"SET_POWER","who":{…},"from_w":1200,"to_w":1000,"result":"ok"}
///
/// A full disk prevents neither lower power nor the renewal of leases: lines that could not be written are counted, and
/// the next line that can be written states how many are missing. Orders for *more* power are refused meanwhile, since
/// nobody could later find their sender.

#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/json.hpp"

namespace sonde::power {

class Audit {
 public:
  /// Creates the folder if it is missing, opens a plain file of this user or root, and completes a line that a crash
  /// left half written. `most_bytes`: at this size the file is renamed to `path`.1, replacing the earlier one. Errors:
  /// power.audit (what, where); the object exists anyway, and tries again with each line. `sync`: fdatasync(2),
  /// replaced in tests.
  Audit(std::string path, std::uint64_t most_bytes, int (*sync)(int) = nullptr);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  /// Writes a line, beginning with the time of day. `sync`: it is on disk when this returns. Errors: power.audit; then
  /// no part of the line is in the file, unless the fault prevents its removal.
  Result<void> write(const JsonLine& line, bool sync);
  /// Whether the last line could be written; before the first line, whether the file could be opened.
  bool works() const { return works_; }
  const Error& trouble() const { return trouble_; }
  std::uint64_t lost() const { return lost_ever_; }

 private:
  Result<void> open();
  Result<void> append(const std::string& text, bool sync);
  Error failed(const char* doing, int number);
  Result<void> refused(const Error& why);

  std::string path_;
  int (*sync_)(int);
  std::uint64_t most_bytes_, bytes_ = 0, lost_ = 0, lost_ever_ = 0;
  int fd_ = -1;
  bool works_ = true;
  Error trouble_;
};

/// "2026-11-23T12:00:00.123Z" of ns since 1970.
std::string rfc3339(std::int64_t realtime_ns);

}  // namespace sonde::power
