// Responses from local state about the server and its models: health, metadata, configuration and statistics.
#pragma once

#include <string>
#include <string_view>

#include "net/http_connection.h"

namespace octet::plane {

class InfoExchange final : public HttpExchange {
 public:
  enum class What : uint8_t { kServer, kLive, kReady, kModel, kModelReady, kConfig, kStatistics, kAllStatistics };

  InfoExchange(HttpConnection& connection, What what, std::string model, std::string version);

  void begin() override;
  void on_body(std::string_view) override {}
  void on_body_end() override {}

 private:
  void answer();
  void about_model(const std::string& model, const std::string& version, const Route& route);
  void json(std::string_view document);

  const What what_;
  const std::string model_, version_;
};

// Returns the statistics of loaded versions. `model` and `version` select them; an empty string selects all. `tenant`
// limits the result to the models of this tenant.
std::string statistics_json(const Plane& plane, const std::string& tenant, std::string_view model,
                            std::string_view version);
std::string statistics_message(const Plane& plane, const std::string& tenant, std::string_view model,
                               std::string_view version);

}  // namespace octet::plane
