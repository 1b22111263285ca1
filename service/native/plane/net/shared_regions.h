// Registration of memory that clients share, in both protocols: Triton's extension `system_shared_memory`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "control/shared_memory.h"
#include "net/http_connection.h"

namespace octet::plane {

inline constexpr std::string_view kSharedMemoryRpc = "SystemSharedMemory";  // common prefix of the names of its RPCs

// Executes the RPC `SystemSharedMemory{rpc}` and returns the response message. Throws Problem.
std::string shared_regions_answer(SharedMemory& memory, std::string_view rpc, std::string_view message);

class SharedRegions final : public HttpExchange {
 public:
  enum class What : uint8_t { kStatus, kRegister, kUnregister };

  static std::optional<What> what_of(std::string_view method, std::string_view verb);

  SharedRegions(HttpConnection& connection, What what, std::string name)
      : HttpExchange(connection), what_(what), name_(std::move(name)) {}

  void begin() override;
  void on_body(std::string_view piece) override;
  void on_body_end() override;

 private:
  std::string status() const;

  const What what_;
  const std::string name_;
  std::string body_;
};

}  // namespace octet::plane
