#include "core/rules/rule_base.hpp"
namespace sonde::rules {
const RuleInfo entropy_info{"entropy", "", "", {}};
std::unique_ptr<Rule> make_entropy(const Options& o, const RuleContext& c) { return make_fixed({{"n", 1000}}, c); (void)o;}
}
