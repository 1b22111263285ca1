// Who may ask: API keys with scopes, rates and quotas, and pages of other sites; as service/api/access has it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace octet::plane {

// Of requests between API and workers: by what the API is known; and a number that a worker says again in its answer.
inline constexpr char kClusterKey[] = "octet-cluster-key", kHopId[] = "octet-hop-id";
inline constexpr char kTenantHeader[] = "octet-tenant";  // whose request it is; with the cluster's key alone

struct Key {
  std::string id;
  std::string sha256;            // of the whole key's text, in hexadecimal
  std::set<std::string, std::less<>> scopes;
  double per_s = 0;              // 0: there is no limit
  int64_t sharers = 1;           // among so many replicas it is divided
  int64_t per_day = 0;           // likewise
  int64_t day = 0;               // since the epoch, for which the control plane knows
  int64_t used = 0;              // so many requests, of other processes
  bool is_valid = true;          // neither revoked nor expired
  std::string tenant;            // whose models it is for; empty: the operator's, which is for all
};

struct Caller {
  std::string id;      // of the key; empty where none is asked for
  std::string tenant;  // of the key
};

// What a browser says of where a request comes from; empty views for what is not there.
struct Origin {
  std::string_view host, origin, fetch_site;
  bool may_change = true;  // the method is none of those that only look
};

// For the event loop's thread.
class Access {
 public:
  void set_keys(bool is_asked, std::vector<Key> keys);
  // `host`: the name that it listens on; `is_particular`: it answers to the names of this machine only.
  void set_sites(std::string host, bool is_particular);
  // The SHA-256 of the key by which the cluster's API is known, in hexadecimal; empty: there is none.
  void set_cluster(std::string sha256) { cluster_sha256_ = std::move(sha256); }

  // Whether this is the cluster's key: what comes with it was admitted by the API.
  bool is_of_cluster(std::string_view key) const;

  // Throws Problem where the key in `authorization` has none of the scopes, or has been used too much; with no key asked
  // for, where the request comes from another site's page.
  Caller admit(std::string_view authorization, const Origin& origin, std::initializer_list<std::string_view> scopes,
               double now_s);

  // Requests of each key that has a limit, since this was last called.
  std::map<std::string, int64_t> take_used();

 private:
  struct Metered {
    Key key;
    double tokens = 0, at_s = 0;
    int64_t day = 0, own = 0, untold = 0;
  };

  Metered& find(std::string_view authorization);
  void charge(Metered& metered, double now_s);
  static void check_day(Metered& metered, const std::string& whose);
  void check_site(const Origin& origin) const;

  bool is_known_ = false, is_asked_ = true;  // until then nobody is let in, nor told that a key is wrong
  bool is_particular_ = true;
  std::string host_, cluster_sha256_;
  std::map<std::string, Metered, std::less<>> keys_;  // by id
};

}  // namespace octet::plane
