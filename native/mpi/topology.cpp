#include "mpi/topology.hpp"

#include <sched.h>
#include <unistd.h>

#include <array>

#ifdef SONDE_HAVE_HWLOC
#include <hwloc.h>
#endif

namespace sonde {

#ifdef SONDE_HAVE_HWLOC
namespace {

// The index of the one object of this kind that covers the binding; -1 when several do or none is known.
int covering(hwloc_topology_t topology, hwloc_const_cpuset_t bound, hwloc_obj_type_t type) {
  const int count = hwloc_get_nbobjs_by_type(topology, type);
  for (int k = 0; k < count; ++k) {
    hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, static_cast<unsigned>(k));
    if (object->cpuset != nullptr && hwloc_bitmap_isincluded(bound, object->cpuset))
      return static_cast<int>(object->logical_index);
  }
  return -1;
}

}  // namespace
#endif

Place find_place() {
  Place place;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) place.host = name.data();
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) == 1) place.cpu = sched_getcpu();
#ifdef SONDE_HAVE_HWLOC
  hwloc_topology_t topology;
  if (hwloc_topology_init(&topology) != 0) return place;
  if (hwloc_topology_load(topology) == 0) {
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (bound != nullptr && hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_PROCESS) == 0) {
      place.core = covering(topology, bound, HWLOC_OBJ_CORE);
      place.l3 = covering(topology, bound, HWLOC_OBJ_L3CACHE);
      place.numa = covering(topology, bound, HWLOC_OBJ_NUMANODE);
      place.package = covering(topology, bound, HWLOC_OBJ_PACKAGE);
    }
    hwloc_bitmap_free(bound);
  }
  hwloc_topology_destroy(topology);
#endif
  return place;
}

}  // namespace sonde
