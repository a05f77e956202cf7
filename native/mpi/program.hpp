#pragma once
/// The common output of every MPI probe: events on rank 0's stdout, errors that any rank may have, the answers to
/// --version and --hello. Owner-thread.

#include <optional>

#include "core/error.hpp"
#include "core/json.hpp"
#include "core/runner.hpp"
#include "mpi/team.hpp"

namespace sonde {

/// Writes one event to stdout, at once. Rank 0 alone speaks.
void emit(const JsonLine& line);

/// The event "error". Rank 0 alone speaks.
void emit_error(const Error& error);

/// The error of the lowest rank that has one, with "rank 3: " before its text, on every rank; nothing if there is no
/// error. Collective. error: this rank's; nullptr if there is none.
std::optional<Error> first_error(const Error* error, MpiTeam& team);

/// Reports the error of the rank that failed, through rank 0. Collective; `stop.failed_rank` is the same on every rank,
/// `stop.error` counts only on that rank.
void emit_failure(const Stop& stop, MpiTeam& team);

/// False on every rank if any rank has an error; rank 0 then reports that of the lowest such rank. Collective. error:
/// this rank's; nullptr if there is none.
bool all_well(const Error* error, MpiTeam& team);

/// The same for a result of any type.
template <class T> bool all_well(const Result<T>& result, MpiTeam& team) {
  return all_well(result ? nullptr : &result.error(), team);
}

/// Answers --version: Sonde's, the MPI's, the standard's, and whether hwloc is there. Needs no MPI_Init.
void print_version();

/// The event "start", with the MPI, the ranks and their cores, and the cost of a clock reading; rank 0 writes it.
void emit_start(const MpiTeam& team, int forwarding_ranks);

/// Answers --hello: the event "hello" with every rank's host. Collective.
void say_hello(MpiTeam& team);

}  // namespace sonde
