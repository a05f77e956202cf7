#include "power/powerd/audit.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "core/owned_file.hpp"

namespace sonde::power {

std::string rfc3339(std::int64_t realtime_ns) {
  const std::time_t s = realtime_ns / 1'000'000'000;
  std::tm day{};
  gmtime_r(&s, &day);
  char text[40];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &day);
  std::snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(realtime_ns % 1'000'000'000 / 1'000'000));
  return text;
}

Audit::Audit(std::string path, std::uint64_t most_bytes, int (*sync)(int))
    : path_(std::move(path)), sync_(sync ? sync : ::fdatasync), most_bytes_(most_bytes) {
  (void)open();
}

Audit::~Audit() {
  if (fd_ >= 0) ::close(fd_);
}

Error Audit::failed(const char* doing, int number) {
  works_ = false;
  trouble_ = {"power.audit", "the audit log " + path_ + " cannot be " + doing + ": " + std::strerror(number),
              "free some space, or set another path in [system-manager] audit; until then the budget is not raised"};
  return trouble_;
}

Result<void> Audit::refused(const Error& why) {
  works_ = false;
  trouble_ = {"power.audit", "the audit log " + path_ + " cannot be opened: " + why.what, why.hint};
  return trouble_;
}

Result<void> Audit::open() {
  if (auto fine = make_folders_to(path_); !fine) return refused(fine.error());
  const auto opened = change_file(path_, 0640);
  if (!opened) return opened.error().code == "core.unsafe_file" ? refused(opened.error()) : failed("opened", errno);
  struct stat state{};
  if (::fstat(*opened, &state) != 0 || (state.st_uid != ::geteuid() && state.st_uid != 0)) {
    ::close(*opened);
    return failed("opened", EPERM);
  }
  fd_ = *opened;
  ::fcntl(fd_, F_SETFL, O_APPEND);
  bytes_ = static_cast<std::uint64_t>(state.st_size);
  char last = '\n';
  if (bytes_ && ::pread(fd_, &last, 1, static_cast<off_t>(bytes_ - 1)) == 1 && last != '\n')
    if (::write(fd_, "\n", 1) == 1) ++bytes_;
  works_ = true;
  return {};
}

Result<void> Audit::append(const std::string& text, bool sync) {
  if (fd_ < 0)
    if (auto opened = open(); !opened) return opened;
  if (bytes_ && bytes_ + text.size() > most_bytes_) {
    ::fsync(fd_);
    ::close(fd_);
    fd_ = -1;
    if (::rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return failed("renamed", errno);
    if (auto opened = open(); !opened) return opened;
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int number = n < 0 ? errno : ENOSPC;
      if (done) (void)!::ftruncate(fd_, static_cast<off_t>(bytes_));  // no half lines
      return failed("written", number);
    }
    done += static_cast<std::size_t>(n);
  }
  if (sync && sync_(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    const int number = errno;
    if (::ftruncate(fd_, static_cast<off_t>(bytes_)) != 0)
      bytes_ += text.size();  // a caller that gets an error must not find its line in the file
    return failed("synced to disk", number);
  }
  bytes_ += text.size();
  works_ = true;
  return {};
}

Result<void> Audit::write(const JsonLine& line, bool sync) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const std::string at = "{\"at\":" + json_quote(rfc3339(std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec)) + ",";
  std::string text;
  if (lost_) text = at + JsonLine().add("what", "audit_gap").add("lost", lost_).text().substr(1) + "\n";
  text += at + line.text().substr(1) + "\n";
  if (auto written = append(text, sync); !written) {
    ++lost_, ++lost_ever_;
    return written;
  }
  lost_ = 0;
  return {};
}

}  // namespace sonde::power
