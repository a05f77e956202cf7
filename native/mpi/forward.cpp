#include "mpi/forward.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/owned_file.hpp"

namespace sonde {

namespace {

constexpr int tag_blocks = 81;
// The largest amount that a rank stores while it waits for the end of an epoch; the writer drops and counts the rest.
constexpr std::size_t most_waiting_bytes = std::size_t{64} << 20;

Result<void> append(const std::string& path, std::span<const std::byte> bytes) {
  const auto opened = append_to_file(path);
  if (!opened) return opened.error();
  const int fd = *opened;
  const off_t begin = ::lseek(fd, 0, SEEK_END);
  std::size_t done = 0;
  int err = 0;
  while (done < bytes.size() && err == 0) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n >= 0) done += static_cast<std::size_t>(n);
    else if (errno != EINTR) err = errno;
  }
  if (err != 0 && ::ftruncate(fd, begin) != 0) {}  // half a block is cut off by the reader as well
  ::close(fd);
  if (err == 0) return {};
  return write_error(path, err);
}

}  // namespace

Result<void> Forwarding::Waiting::put(std::span<const std::byte> more) {
  if (bytes.size() + more.size() > most_waiting_bytes)
    return Error{"net.forward_full", "more than 64 MiB wait to be sent to rank 0",
                 "use shorter epochs or a shared folder"};
  bytes.insert(bytes.end(), more.begin(), more.end());
  return {};
}

std::string Forwarding::path_of(int rank) const {
  char name[32];
  std::snprintf(name, sizeof name, "/rank-%05d.blk", rank);
  return dir_ + name;
}

Result<Forwarding> Forwarding::open(const std::string& dir, MpiTeam& team, bool force) {
  Forwarding self(dir, team);
  const std::string token = dir + "/.seen-by-rank-0";
  int err = 0;
  if (team.rank() == 0) {
    const int fd = ::open(token.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    err = fd < 0 ? errno : 0;
    if (fd >= 0) ::close(fd);
  }
  MPI_Bcast(&err, 1, MPI_INT, 0, team.comm());
  if (err != 0)
    return Error{"core.cannot_write", "rank 0 cannot write in " + dir + ": " + std::strerror(err),
                 "choose a folder that exists on the host of rank 0 with --output"};
  int sees = team.rank() == 0 || (!force && ::access(token.c_str(), W_OK) == 0);
  std::vector<int> all(static_cast<std::size_t>(team.size()));
  MPI_Allgather(&sees, 1, MPI_INT, all.data(), 1, MPI_INT, team.comm());
  for (int r = 0; r < team.size(); ++r)
    if (!all[static_cast<std::size_t>(r)]) self.senders_.push_back(r);
  self.forwards_ = sees == 0;
  if (team.rank() == 0) ::unlink(token.c_str());
  return self;
}

Result<BlockSink*> Forwarding::sink() {
  if (forwards_) {
    waiting_ = std::make_unique<Waiting>();
    return static_cast<BlockSink*>(waiting_.get());
  }
  auto file = FileSink::create(path_of(team_->rank()));
  if (!file) return file.error();
  file_ = std::make_unique<FileSink>(std::move(*file));
  return static_cast<BlockSink*>(file_.get());
}

Result<void> Forwarding::drain() {
  if (senders_.empty()) return {};
  Result<void> result;
  if (team_->rank() == 0) {
    std::vector<std::byte> bytes;
    for (const int r : senders_) {
      MPI_Status status;
      MPI_Probe(r, tag_blocks, team_->comm(), &status);
      int n = 0;
      MPI_Get_count(&status, MPI_BYTE, &n);
      bytes.resize(static_cast<std::size_t>(n));
      MPI_Recv(bytes.data(), n, MPI_BYTE, r, tag_blocks, team_->comm(), MPI_STATUS_IGNORE);
      if (n == 0) continue;
      if (auto done = append(path_of(r), bytes); !done) result = done;
    }
  } else if (waiting_) {
    MPI_Send(waiting_->bytes.data(), static_cast<int>(waiting_->bytes.size()), MPI_BYTE, 0, tag_blocks, team_->comm());
    waiting_->bytes.clear();
  }
  return result;
}

}  // namespace sonde
