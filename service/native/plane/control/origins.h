// Cross-origin resource sharing (Fetch Standard, section 3.3): which web sites' pages may read responses.
//
// The headers of a response permit the page of an origin to read it, and the response to a preflight request (OPTIONS)
// permits the page to send methods, and headers such as `Authorization`, beyond those of HTML forms. Cookies and other
// credentials that a browser adds by itself are never permitted: a page sends an API key, if one is needed.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/http1.h"

namespace octet::plane {

class Origins {
 public:
  // `origins`: serialized origins, such as https://app.example, or "*" for every origin. Without origins, no response
  // has a header of this protocol.
  void set(const std::vector<std::string>& origins);

  // Returns true if `origin` is listed by name. Such a page counts as one of this server's own, even if no key is
  // required. The entry "*" does not have this effect.
  bool names(std::string_view origin) const { return origins_.count(origin) > 0; }

  // Returns true for a preflight request from an origin that may read responses.
  bool is_preflight(const RequestHead& head) const;
  // Returns the header lines for the response to a preflight request, each with its line end.
  std::string preflight_lines(const RequestHead& head) const;
  // Returns the header lines for any other response.
  std::string response_lines(std::string_view origin) const;

 private:
  bool may_read(std::string_view origin) const { return !origin.empty() && (is_any_ || names(origin)); }

  bool is_any_ = false;
  std::set<std::string, std::less<>> origins_;
};

}  // namespace octet::plane
