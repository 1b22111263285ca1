// Access control of the data plane: API keys with scopes, rates and daily quotas, and protection against requests from
// other web sites. It applies the same rules as service/api/access.
//
// The control plane sends the keys, and how often other processes used them. The data plane stores only the SHA-256 of
// each key. Rates and quotas are enforced by each process: each of `sharers` replicas grants its part of the rate. A
// daily quota can be exceeded by the requests that the replicas admit between two reports.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/origins.h"

namespace octet::plane {

// Headers of requests between the API and workers: the secret key that identifies the cluster's API, and a request
// number that the worker repeats in its response.
inline constexpr char kClusterKey[] = "octet-cluster-key", kHopId[] = "octet-hop-id";
// The name of the tenant that sent the request. The header is ignored if the request does not have the cluster's key.
inline constexpr char kTenantHeader[] = "octet-tenant";

struct Key {
  std::string id;
  std::string sha256;  // SHA-256 of the whole key, in hexadecimal
  std::set<std::string, std::less<>> scopes;
  double per_s = 0;      // Requests per second; 0 means no limit.
  int64_t sharers = 1;   // Number of replicas that share the rate.
  int64_t per_day = 0;   // Requests per day of all replicas together; 0 means no limit.
  int64_t day = 0;       // The day that `used` belongs to, counted from the epoch.
  int64_t used = 0;      // Requests that other processes admitted on that day.
  bool is_valid = true;  // False once the key is revoked or has expired.
  // the tenant whose models the key may use; empty for an operator's key, which is valid for all models
  std::string tenant;
};

struct Caller {
  std::string id;      // Id of the key; empty if no key is required.
  std::string tenant;  // Tenant of the key.
};

// The headers by which a browser reports the origin of a request. A view is empty if its header is missing.
struct Origin {
  std::string_view host, origin, fetch_site;
  bool may_change = true;  // false for methods that only read
};

// Must be used on the event loop's thread only.
class Access {
 public:
  void set_keys(bool is_key_required, std::vector<Key> keys);
  // `host`: the name that the server listens on. `is_particular`: true to accept only requests for this machine's own
  // names.
  void set_sites(const std::string& host, bool is_particular);
  // The web sites whose pages may read responses.
  Origins& origins() { return origins_; }
  const Origins& origins() const { return origins_; }
  // Sets the SHA-256, in hexadecimal, of the key that identifies the cluster's API. If it is empty, no such key is
  // accepted.
  void set_cluster(std::string sha256) { cluster_sha256_ = std::move(sha256); }

  // Returns true if `key` is the cluster's key. The API has already admitted the requests that carry it.
  bool is_of_cluster(std::string_view key) const;

  // Admits a request and returns its caller. Throws Problem if the key in `authorization` is invalid, lacks the scopes,
  // or has exhausted its rate or quota. If no keys are required, throws Problem if the request comes from a page of
  // another site.
  Caller admit(std::string_view authorization, const Origin& origin, std::initializer_list<std::string_view> scopes,
               double now_s);

  // Returns for each limited key the number of its requests since the last call.
  std::map<std::string, int64_t> take_used();

 private:
  struct Metered {
    Key key;
    double tokens = 0, at_s = 0;
    int64_t day = 0, admitted = 0, unreported = 0;
  };

  Metered& find(std::string_view authorization);
  void charge(Metered& metered, double now_s);
  static void check_day(Metered& metered, const std::string& whose);
  void check_site(const Origin& origin) const;

  // Until the control plane has sent the keys (`has_keys_`), every request is refused as "restarting" rather than as
  // unauthorized.
  bool has_keys_ = false, is_key_required_ = true;
  bool is_particular_ = true;
  std::string host_, cluster_sha256_;
  Origins origins_;
  std::map<std::string, Metered, std::less<>> keys_;  // by id
};

}  // namespace octet::plane
