#include "control/access.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "request/tenant.h"
#include "runtime/sha256.h"
#include "text/http1.h"
#include "text/problem.h"

namespace octet::plane {

namespace {

constexpr int64_t kSecondsOfDay = 24 * 60 * 60;
constexpr std::string_view kBearer = "bearer ", kPrefix = "octet_", kLocal = ".localhost";
constexpr size_t kShortestKeyId = 4, kLongestKeyId = 16, kShortestSecret = 32, kLongestSecret = 128;
constexpr char kHowToShowKey[] = "send the header Authorization: Bearer KEY; the octet command takes it from OCTET_KEY";

int64_t seconds_of_epoch() { return std::time(nullptr); }

std::string lower(std::string_view text) {
  std::string its(text);
  for (char& each : its) each = each >= 'A' && each <= 'Z' ? static_cast<char>(each + ('a' - 'A')) : each;
  return its;
}

bool is_alphanumeric(char each, bool may_be_capital) {
  return (each >= '0' && each <= '9') || (each >= 'a' && each <= 'z') || (may_be_capital && each >= 'A' && each <= 'Z');
}

// Returns the id in a key's text, which has the form octet_ID_SECRET. Returns an empty view if `text` has another form.
std::string_view id_of(std::string_view text) {
  if (text.substr(0, kPrefix.size()) != kPrefix) return {};
  text.remove_prefix(kPrefix.size());
  size_t end = text.find('_');
  if (end == text.npos) return {};
  std::string_view id = text.substr(0, end), secret = text.substr(end + 1);
  bool is_id = id.size() >= kShortestKeyId && id.size() <= kLongestKeyId &&
               std::all_of(id.begin(), id.end(), [](char each) { return is_alphanumeric(each, false); });
  bool is_secret = secret.size() >= kShortestSecret && secret.size() <= kLongestSecret &&
                   std::all_of(secret.begin(), secret.end(), [](char each) { return is_alphanumeric(each, true); });
  return is_id && is_secret ? id : std::string_view();
}

std::string sha256_of(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  uint8_t digest[kDigestBytes];
  Sha256 hash;
  hash.update(text.data(), text.size());
  hash.finish(digest);
  std::string hexadecimal;
  for (uint8_t byte : digest) hexadecimal.append({kDigits[byte >> 4], kDigits[byte & 15]});
  return hexadecimal;
}

// Compares two texts in a time that does not depend on how many of their bytes are equal.
bool is_same(std::string_view one, std::string_view other) {
  unsigned difference = one.size() != other.size();
  for (size_t index = 0; index < std::min(one.size(), other.size()); ++index) {
    difference |= static_cast<unsigned char>(one[index] ^ other[index]);
  }
  return difference == 0;
}

// Returns the host name of a `Host` header, without the port.
std::string_view name_of(std::string_view host) {
  size_t colon = host.rfind(':');
  if (colon == host.npos || colon == 0 || colon + 1 == host.size()) return host;
  std::string_view port = host.substr(colon + 1);
  bool is_port = std::all_of(port.begin(), port.end(), [](char each) { return each >= '0' && each <= '9'; });
  return is_port ? host.substr(0, colon) : host;
}

// Returns true if `name` always resolves to the machine itself (RFC 6761, RFC 1122).
bool is_local(std::string_view name) {
  if (name == "localhost" || (name.size() > kLocal.size() && name.substr(name.size() - kLocal.size()) == kLocal))
    return true;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  std::string text(name);
  in_addr four;
  in6_addr six;
  if (::inet_pton(AF_INET, text.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24) == 127;
  return ::inet_pton(AF_INET6, text.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

}  // namespace

void Access::set_keys(bool is_key_required, std::vector<Key> keys) {
  has_keys_ = true;
  is_key_required_ = is_key_required;
  std::map<std::string, Metered, std::less<>> known;
  for (Key& key : keys) {
    std::string id = key.id;
    auto old = keys_.find(id);
    Metered metered;
    if (old != keys_.end()) metered = old->second;
    metered.admitted = metered.unreported;  // the control plane includes reported requests in `used`
    metered.key = std::move(key);
    known.emplace(std::move(id), std::move(metered));
  }
  keys_ = std::move(known);
}

void Access::set_sites(const std::string& host, bool is_particular) {
  host_ = lower(host);
  is_particular_ = is_particular;
}

bool Access::is_of_cluster(std::string_view key) const {
  return !key.empty() && !cluster_sha256_.empty() && is_same(sha256_of(key), cluster_sha256_);
}

Caller Access::admit(std::string_view authorization, const Origin& origin,
                     std::initializer_list<std::string_view> scopes, double now_s) {
  if (!has_keys_) throw Problem(ErrorType::kRestarting, "the API keys have not been loaded yet", "try again later");
  if (!is_key_required_) {
    check_site(origin);
    return {};
  }
  Metered& metered = find(authorization);
  const auto& its = metered.key.scopes;
  bool is_allowed =
      its.count("admin") || std::any_of(scopes.begin(), scopes.end(), [&](auto scope) { return its.count(scope); });
  if (!is_allowed) {
    std::string scope(*scopes.begin());
    throw Problem(ErrorType::kForbidden, "the key " + metered.key.id + " lacks the scope " + scope,
                  "octet keys create NAME --scope " + scope + " creates a key with this scope");
  }
  charge(metered, now_s);
  return {metered.key.id, metered.key.tenant};
}

Access::Metered& Access::find(std::string_view authorization) {
  if (authorization.empty()) throw Problem(ErrorType::kUnauthorized, "an API key is required", kHowToShowKey);
  if (!same_but_case(authorization.substr(0, kBearer.size()), kBearer)) {
    throw Problem(ErrorType::kUnauthorized, "the header Authorization is not of the form Bearer KEY", kHowToShowKey);
  }
  std::string_view text = strip(authorization.substr(kBearer.size()));
  auto found = keys_.find(id_of(text));
  bool is_known = found != keys_.end() && found->second.key.is_valid;
  if (is_known) {
    is_known = is_same(sha256_of(text), found->second.key.sha256);
  }
  if (!is_known) {
    throw Problem(ErrorType::kUnauthorized, "the API key is not known, or was revoked",
                  "octet keys list shows the valid ones");
  }
  return found->second;
}

// Charges one request to a key and to its tenant. A refused request is not counted. The key's token bucket fills at
// this replica's part of the key's rate, and holds at most the tokens of one second. The entry TENANT + kTenantEnd
// counts the requests of all keys of a tenant for the tenant's daily limit.
void Access::charge(Metered& metered, double now_s) {
  const Key& key = metered.key;
  auto common = key.tenant.empty() ? keys_.end() : keys_.find(key.tenant + kTenantEnd);
  Metered* tenant = common == keys_.end() ? nullptr : &common->second;
  if (tenant != nullptr) check_day(*tenant, "tenant " + key.tenant);
  check_day(metered, "key");
  if (key.per_s > 0) {
    double share = key.per_s / static_cast<double>(std::max<int64_t>(1, key.sharers)), size = std::max(1.0, share);
    metered.tokens = metered.at_s == 0 ? size : std::min(size, metered.tokens + (now_s - metered.at_s) * share);
    metered.at_s = now_s;
    if (metered.tokens < 1) {
      char rate[32];
      std::snprintf(rate, sizeof rate, "%g", key.per_s);
      std::string shared = key.sharers > 1 ? ", which " + std::to_string(key.sharers) + " servers share" : "";
      Problem problem(ErrorType::kRateLimited, std::string("the key is for ") + rate + " requests/s" + shared);
      problem.retry_after_s = (1 - metered.tokens) / share;
      throw problem;
    }
    metered.tokens -= 1;
  }
  for (Metered* each : {&metered, tenant}) {
    if (each == nullptr) continue;
    ++each->admitted;
    ++each->unreported;
  }
}

void Access::check_day(Metered& metered, const std::string& whose) {
  const Key& key = metered.key;
  if (key.per_day <= 0) return;
  int64_t now = seconds_of_epoch(), today = now / kSecondsOfDay;
  if (metered.day != today) {
    metered.day = today;
    metered.admitted = 0;
  }
  int64_t others = key.day == today ? key.used : 0;
  if (metered.admitted + others < key.per_day) return;
  Problem problem(ErrorType::kQuotaExceeded,
                  "the " + whose + "'s " + std::to_string(key.per_day) + " requests of this day are used up",
                  "the next day begins at midnight, UTC");
  problem.retry_after_s = static_cast<double>((today + 1) * kSecondsOfDay - now);
  throw problem;
}

// Applies the rule of Go's net/http.CrossOriginProtection. Clients other than browsers send neither `Sec-Fetch-Site`
// nor `Origin`, and pass.
void Access::check_site(const Origin& origin) const {
  std::string host = lower(origin.host);
  std::string_view name = name_of(host);
  if (is_particular_ && !host.empty() && !is_local(name) && name != host_) {
    throw Problem(ErrorType::kForeignHost,
                  "the request is for host " + brief(host) + ", but this server is on " + host_,
                  "behind a proxy, create an API key (octet keys create), or turn keys off: OCTET_AUTH=off");
  }
  if (!origin.may_change) return;
  bool is_same_site = true;
  if (origins_.names(origin.origin)) return;
  if (!origin.fetch_site.empty()) {
    is_same_site = origin.fetch_site == "same-origin" || origin.fetch_site == "none";
  } else if (!origin.origin.empty()) {
    size_t begin = origin.origin.find("://");
    is_same_site = begin != origin.origin.npos && lower(origin.origin.substr(begin + 3)) == host;
  }
  if (!is_same_site) {
    throw Problem(ErrorType::kCrossSite,
                  "a web page of another site sent this request, and may not change anything here",
                  "add the page's origin to the setting cors_origins, or use an API key: octet keys create NAME");
  }
}

std::map<std::string, int64_t> Access::take_used() {
  std::map<std::string, int64_t> used;
  for (auto& [id, metered] : keys_) {
    bool is_limited = metered.key.per_day > 0 || metered.key.per_s > 0;
    if (is_limited && metered.unreported > 0) used[id] = metered.unreported;
    metered.unreported = 0;
  }
  return used;
}

}  // namespace octet::plane
