// The system manager's page for a scraper.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

#include "power/powerd/system.hpp"

namespace sonde::power {

namespace {

std::string label(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

}  // namespace

std::string metrics_text(const SystemAnswer& answer, const Manager::Counts& counts, bool leads,
                         std::uint64_t audit_lost, std::uint64_t bus_failed) {
  std::string out;
  const ClusterTelemetry& c = answer.cluster;
  const auto family = [&](const char* name, const char* type, const char* unit, const char* help) {
    out += std::string("# TYPE ") + name + ' ' + type + '\n';
    if (*unit) out += std::string("# UNIT ") + name + ' ' + unit + '\n';
    out += std::string("# HELP ") + name + ' ' + help + '\n';
  };
  const auto gauge = [&](const char* name, const char* unit, const char* help, double value) {
    family(name, "gauge", unit, help);
    out += std::string(name) + ' ' + number(value) + '\n';
  };
  const auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    family(name, "counter", "", help);
    out += std::string(name) + "_total " + std::to_string(value) + '\n';
  };
  family("sonde_power_manager", "info", "", "Which system manager this is.");
  out += "sonde_power_manager_info{cluster=\"" + label(c.cluster) + "\",manager=\"" + label(c.manager) +
         "\",policy=\"" + label(c.policy) + "\"} 1\n";
  gauge("sonde_power_leading", "", "1 if this manager leads, else 0.", leads);
  gauge("sonde_power_epoch", "", "Epoch of the leader, as far as this manager knows.", static_cast<double>(c.epoch));
  gauge("sonde_power_budget_watts", "watts", "The power that all nodes together may draw.", c.budget_w);
  gauge("sonde_power_budget_restored_watts", "watts", "The budget after the end of a shed; NaN if no shed is active.",
        c.restored_w);
  gauge("sonde_power_safe_watts", "watts", "The sum of the nodes' safe caps.", c.safe_w);
  gauge("sonde_power_committed_watts", "watts",
        "The highest power that the known nodes together may have as caps; NaN if this manager does not lead.",
        c.committed_w);
  gauge("sonde_power_unknown_nodes", "",
        "Nodes whose leases from an earlier manager are not known yet; committed_watts counts them at their safe caps.",
        c.unknown_nodes);
  gauge("sonde_power_unknown_watts", "watts",
        "The highest power by which these nodes may exceed their safe caps; it is not lent.", c.unknown_w);
  gauge("sonde_power_drawn_watts", "watts", "Power drawn by the nodes that report.", c.power_w);
  gauge("sonde_power_nodes", "", "Nodes in the configuration.", c.nodes);
  gauge("sonde_power_nodes_heard", "", "Nodes that report.", c.heard);
  gauge("sonde_power_nodes_leased", "", "Nodes that have a lease.", c.leased);
  const auto each = [&](const char* name, const char* help, double NodeShare::* member) {
    family(name, "gauge", "watts", help);
    for (const auto& n : answer.nodes)
      if (!std::isnan(n.*member))
        out += std::string(name) + "{node=\"" + label(n.node) + "\"} " + number(n.*member) + '\n';
  };
  each("sonde_power_node_drawn_watts", "Power drawn by a node.", &NodeShare::power_w);
  each("sonde_power_node_cap_watts", "The cap that a node's hardware has.", &NodeShare::cap_w);
  each("sonde_power_node_committed_watts", "The highest cap that a node may have.", &NodeShare::committed_w);
  family("sonde_power_node_trouble", "gauge", "", "1 if a node has a problem.");
  for (const auto& n : answer.nodes)
    out += "sonde_power_node_trouble{node=\"" + label(n.node) + "\"} " + (n.trouble.empty() ? "0\n" : "1\n");
  counter("sonde_power_takeovers", "Times that this manager began to lead.", counts.takeovers);
  counter("sonde_power_stepped_back", "Times that it stopped leading while it ran.", counts.stepped_back);
  counter("sonde_power_grants", "Leases sent to nodes.", counts.grants);
  counter("sonde_power_refusals", "Replies of nodes with an error.", counts.refused);
  counter("sonde_power_orders", "Orders received.", counts.orders);
  counter("sonde_power_orders_refused", "Orders refused.", counts.orders_refused);
  counter("sonde_power_proposals_corrected", "Proposals of the policy that broke a limit.", counts.corrected);
  counter("sonde_power_names_twice", "Times that several node managers of one name began to run at the same time.",
          counts.namesakes);
  counter("sonde_power_implausible", "Implausible messages, which were ignored.", counts.implausible);
  counter("sonde_power_unknown_node_messages", "Messages of nodes that are not in the configuration.",
          counts.unknown_nodes);
  counter("sonde_power_audit_lost", "Lines that could not be written to the audit log.", audit_lost);
  counter("sonde_power_bus_failures", "Messages that the bus refused, and calls without a reply.", bus_failed);
  return out + "# EOF\n";
}

}  // namespace sonde::power
