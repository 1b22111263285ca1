// Names of models by tenant: a tenant's models have names of its own, which stand behind it here.
#pragma once

#include <string>
#include <string_view>

#include "request/problem.h"

namespace octet::plane {

inline constexpr char kTenantEnd = '~';  // no name that a tenant may say holds one

// The name that a model of a tenant has here, by what the tenant calls it. Throws Problem where that is no name.
inline std::string qualified(const std::string& tenant, std::string_view model) {
  if (tenant.empty()) return std::string(model);
  if (model.find(kTenantEnd) != model.npos) throw Problem(Kind::kNotFound, "there is no model " + brief(model));
  return tenant + kTenantEnd + std::string(model);
}

// What a model's tenant calls it.
inline std::string_view without_tenant(std::string_view model) {
  size_t end = model.find(kTenantEnd);
  return end == model.npos ? model : model.substr(end + 1);
}

}  // namespace octet::plane
