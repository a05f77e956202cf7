#pragma once
/// From which interfaces the sockets of IPv4 groups take datagrams. Any-thread.

namespace sonde::bus::fastdds {

/// Has this process's sockets that are bound to a group take it only from interfaces on which they have joined it.
///
/// Fast DDS joins on the interfaces of its list alone. But Linux hands a group's datagrams to each socket of the group,
/// whatever interface it joined on, once anybody on the machine has joined on the one where they come in (ip(7),
/// IP_MULTICAST_ALL): another host could take part in the discovery of a bus on loopback. Fast DDS does not show its
/// sockets, so they are looked for; one of somebody else that is found as well loses nothing that it has joined.
void take_joined_groups_only();

}  // namespace sonde::bus::fastdds
