#pragma once
/// Waiting without burning a core that another rank needs.
///
/// Where ranks share cores (SONDE_YIELD=1 in the environment) a blocking call that spins inside MPI keeps its peer from
/// running until the kernel takes the core away, which costs milliseconds. Open MPI yields by itself if its settings
/// ask for it (mpi_yield_when_idle). MPICH's ch4 device does not, so there each blocking call becomes its non-blocking
/// form and a loop of test and sched_yield. Elsewhere these are the plain calls. Owner-thread.

#include <mpi.h>
#include <sched.h>

#include <cstdlib>
#include <cstring>

namespace sonde::polite {

/// Whether this process must yield by hand.
inline bool by_hand() {
  static const bool wanted = [] {
    const char* told = std::getenv("SONDE_YIELD");
    return told != nullptr && std::strcmp(told, "1") == 0 && std::strcmp(SONDE_MPI_FLAVOUR, "openmpi") != 0;
  }();
  return wanted;
}

inline void wait(MPI_Request& request) {
  if (!by_hand()) {
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return;
  }
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done) return;
    sched_yield();
  }
}

inline void wait_all(int count, MPI_Request* requests) {
  if (!by_hand()) {
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    return;
  }
  for (int k = 0; k < count; ++k) wait(requests[k]);
}

inline int wait_any(int count, MPI_Request* requests) {
  int which = MPI_UNDEFINED;
  if (!by_hand()) {
    MPI_Waitany(count, requests, &which, MPI_STATUS_IGNORE);
    return which;
  }
  for (int done = 0;;) {
    MPI_Testany(count, requests, &which, &done, MPI_STATUS_IGNORE);
    if (done) return which;
    sched_yield();
  }
}

inline void send(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  if (!by_hand()) {
    MPI_Send(data, count, type, peer, tag, comm);
    return;
  }
  MPI_Request request;
  MPI_Isend(data, count, type, peer, tag, comm, &request);
  wait(request);
}

inline void recv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm) {
  if (!by_hand()) {
    MPI_Recv(data, count, type, peer, tag, comm, MPI_STATUS_IGNORE);
    return;
  }
  MPI_Request request;
  MPI_Irecv(data, count, type, peer, tag, comm, &request);
  wait(request);
}

inline void barrier(MPI_Comm comm) {
  if (!by_hand()) {
    MPI_Barrier(comm);
    return;
  }
  MPI_Request request;
  MPI_Ibarrier(comm, &request);
  wait(request);
}

inline void bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (!by_hand()) {
    MPI_Bcast(data, count, type, root, comm);
    return;
  }
  MPI_Request request;
  MPI_Ibcast(data, count, type, root, comm, &request);
  wait(request);
}

/// Tag of the next message from `peer`.
inline int probe(int peer, MPI_Comm comm) {
  MPI_Status status;
  if (!by_hand()) {
    MPI_Probe(peer, MPI_ANY_TAG, comm, &status);
    return status.MPI_TAG;
  }
  for (int there = 0;;) {
    MPI_Iprobe(peer, MPI_ANY_TAG, comm, &there, &status);
    if (there) return status.MPI_TAG;
    sched_yield();
  }
}

}  // namespace sonde::polite
