#pragma once
/// Clocks of several ranks on one time scale. The caller supplies the exchanges; this is the estimate.
///
/// A rank sends a message to the reference and gets the reference's time back; the reference's stamp lies
/// between the rank's two. Of a batch of exchanges the one with the shortest round trip bounds the offset
/// best (Cristian 1989). A line through such points over time gives offset and drift (Jones and Koenig 2013;
/// HCA3: Hunold and Carpen-Amarie 2018). Owner-thread.

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace sonde {

/// One exchange, seen by the rank: its clock before and after, and the reference's stamp in between. All in s.
struct ClockExchange {
  double before, reference, after;
};

/// One synchronisation point: at local time `local`, reference - local was `offset`, give or take `error`
/// (half the shortest round trip: the offset cannot be further off than that).
struct ClockPoint {
  double local, offset, error;
};

/// The best point of a batch. A batch of none gives error = infinity.
ClockPoint best_clock_point(std::span<const ClockExchange> batch);

/// The line through the last points: reference = local + offset + drift * (local - origin).
class ClockModel {
 public:
  /// keep: how many points the line is laid through. Drift is 0 until two points stand at least 1 ms apart.
  explicit ClockModel(std::size_t keep = 16) : keep_(keep) {}

  void add(const ClockPoint& point);

  /// Reference time of a local time. Before any point: the local time itself.
  double to_reference(double local) const { return local + offset_ + drift_ * (local - origin_); }

  double offset() const { return offset_; }  ///< s, at the last point
  double drift() const { return drift_; }    ///< s per s
  /// The possible error of a converted time, s: the last point's own error plus the distance of the line from that
  /// point before it was added. Infinity before any point.
  double error() const { return error_; }
  double origin() const { return origin_; }

 private:
  std::size_t keep_;
  std::vector<ClockPoint> points_;
  double offset_ = 0, drift_ = 0, origin_ = 0, error_ = std::numeric_limits<double>::infinity();
  bool first_ = true;
};

}  // namespace sonde
