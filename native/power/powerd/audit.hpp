#pragma once
/// The audit log: who asked for what, what it was before and after, and what came of it. One JSON object a line; what
/// changes the control of the cluster is on the disk before anybody is told that it happened. Owner-thread.
///
///   {"at":"2026-11-23T12:00:00.123Z","manager":"m1","epoch":3,"what":"SET_POWER","who":{…},"from_w":1200,"to_w":1000,"result":"ok"}
///
/// A disk that is full stops nothing that lowers power, and no lease that is renewed: lines that could not be written
/// are counted, and the first that can be again says how many are missing. Who asks for *more* power is refused
/// meanwhile: nobody could say later who it was.

#include <cstdint>
#include <string>

#include "core/error.hpp"
#include "core/json.hpp"

namespace sonde::power {

class Audit {
 public:
  /// Makes the folder where it is missing, and ends a line that a crash left half. `most_bytes`: the file is then
  /// renamed to `path`.1, in the place of the one before. Errors: power.audit (what, where); the object is there all
  /// the same, and tries again with each line. `sync`: fdatasync(2), but for tests.
  Audit(std::string path, std::uint64_t most_bytes, int (*sync)(int) = nullptr);
  ~Audit();
  Audit(const Audit&) = delete;
  Audit& operator=(const Audit&) = delete;

  /// A line, with the time of the day before it. `sync`: it is on the disk when this returns. Errors: power.audit;
  /// nothing of the line is in the file, as far as what failed lets it be taken out again.
  Result<void> write(const JsonLine& line, bool sync);
  /// Whether the last line could be written; of one that was never written to, whether it could be opened.
  bool works() const { return works_; }
  const Error& trouble() const { return trouble_; }
  std::uint64_t lost() const { return lost_ever_; }

 private:
  Result<void> open();
  Result<void> append(const std::string& text, bool sync);
  Error failed(const char* doing, int number);

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
