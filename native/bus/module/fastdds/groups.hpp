#pragma once
/// Limits the interfaces from which sockets of IPv4 groups receive datagrams. Any-thread.

namespace sonde::bus::fastdds {

/// Makes this process's sockets of a group receive it only from interfaces on which they have joined it.
///
/// Fast DDS joins only on the interfaces of its list. But as soon as any program on the machine has joined a group on
/// an interface, Linux delivers the group's datagrams from there to every socket of the group, whatever interface it
/// joined on (ip(7), IP_MULTICAST_ALL): another host could take part in the discovery of a bus on loopback. Fast DDS
/// does not show its sockets, so they are searched. Sockets of other code that are found too lose nothing that they
/// have joined.
void take_joined_groups_only();

}  // namespace sonde::bus::fastdds
