// The frames of HTTP/2 in their wire format (RFC 9113 sections 4 and 6).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace octet::h2 {

using StreamId = uint32_t;
using Clock = std::chrono::steady_clock;

inline constexpr std::string_view kClientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";  // RFC 9113 section 3.4
inline constexpr size_t kFrameHeaderBytes = 9;
inline constexpr StreamId kMaxStreamId = 0x7fffffff;
inline constexpr int64_t kMaxWindow = 0x7fffffff;     // RFC 9113 section 6.9.1.
inline constexpr uint32_t kDefaultWindow = 65535;     // RFC 9113 section 6.5.2.
inline constexpr uint32_t kSmallestMaxFrame = 16384;  // RFC 9113 section 6.5.2, also the default.
inline constexpr uint32_t kLargestMaxFrame = 0xffffff;

enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kRstStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

namespace flag {
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kAck = 0x1;
inline constexpr uint8_t kEndHeaders = 0x4;
inline constexpr uint8_t kPadded = 0x8;
inline constexpr uint8_t kPriority = 0x20;
}  // namespace flag

/// RFC 9113 section 7.
enum class ErrorCode : uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kInternalError = 2,
  kFlowControlError = 3,
  kSettingsTimeout = 4,
  kStreamClosed = 5,
  kFrameSizeError = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompressionError = 9,
  kConnectError = 10,
  kEnhanceYourCalm = 11,
};

/// RFC 9113 section 6.5.2.
enum class Setting : uint16_t {
  kHeaderTableSize = 1,
  kEnablePush = 2,
  kMaxConcurrentStreams = 3,
  kInitialWindowSize = 4,
  kMaxFrameSize = 5,
  kMaxHeaderListSize = 6,
};

struct FrameHeader {
  uint32_t length = 0;  // length of the payload in bytes
  FrameType type = FrameType::kData;
  uint8_t flags = 0;
  StreamId stream = 0;

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
};

inline uint16_t read_u16(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] << 8 | bytes[1]); }

inline uint32_t read_u32(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

inline void append_u32(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift));
}

inline void append_setting(std::string& out, Setting setting, uint32_t value) {
  out.push_back(static_cast<char>(static_cast<uint16_t>(setting) >> 8));
  out.push_back(static_cast<char>(setting));
  append_u32(out, value);
}

inline FrameHeader read_frame_header(const uint8_t* bytes) {
  const uint32_t length = uint32_t{bytes[0]} << 16 | uint32_t{bytes[1]} << 8 | bytes[2];
  return {length, static_cast<FrameType>(bytes[3]), bytes[4], read_u32(bytes + 5) & kMaxStreamId};
}

inline void append_frame_header(std::string& out, const FrameHeader& header) {
  append_u32(out, header.length << 8 | static_cast<uint8_t>(header.type));
  out.push_back(static_cast<char>(header.flags));
  append_u32(out, header.stream);
}

}  // namespace octet::h2
