// The internal names of tenants' models: TENANT~NAME. A tenant sees only NAME.
#pragma once

#include <string>
#include <string_view>

#include "text/problem.h"

namespace octet::plane {

inline constexpr char kTenantEnd = '~';  // separator; no name that a client may send contains it

// Returns the internal name of a tenant's model. Throws Problem if `model` is not a valid name.
inline std::string qualify_name(const std::string& tenant, std::string_view model) {
  if (tenant.empty()) return std::string(model);
  if (model.find(kTenantEnd) != model.npos) throw Problem(ErrorType::kNotFound, "there is no model " + brief(model));
  return tenant + kTenantEnd + std::string(model);
}

// Returns the name by which a tenant knows its model.
inline std::string_view without_tenant(std::string_view model) {
  size_t end = model.find(kTenantEnd);
  return end == model.npos ? model : model.substr(end + 1);
}

}  // namespace octet::plane
