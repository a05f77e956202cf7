#pragma once
/// C++ structures as samples: one description gives the Type, the encoder and the decoder.
///
///   struct NodePower { std::string node; double power_w; };
///   template <> struct sonde::bus::Described<NodePower> {
///     static constexpr auto name = "regale::NodePower";
///     static constexpr auto fields = std::tuple{key("node", &NodePower::node), field("power_w", &NodePower::power_w, "W")};
///   };
///
/// Members may be arithmetic (no long double), bool, enum class with a Described of its own, std::string, std::vector, std::array,
/// described structures. Any-thread.
