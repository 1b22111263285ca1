#include "plan.h"

#include <inttypes.h>
#include <string.h>

#include "config.h"

namespace octet {

namespace {

constexpr int64_t kMostArenaBytes = int64_t{1} << 40;
constexpr int64_t kLengthBytes = sizeof(int32_t);
constexpr size_t kMostBuffers = 1 << 20, kMostCalls = 1 << 18, kMostOperands = 4096, kMostCopies = 1 << 18;

// The limits of every GPU for a launch: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
// They limit the blocks along x, y and z, the threads of a block along x, y and z, and the bytes of dynamic shared
// memory.
constexpr int64_t kMostOfLaunch[] = {INT32_MAX, 65535, 65535, 1024, 1024, 64, 227 << 10};
constexpr size_t kLaunchNumbers = 7;
constexpr int64_t kMostThreadsOfBlock = 1024;

struct SpaceName {
  Space space;
  const char* name;
};
constexpr SpaceName kSpaces[] = {
    {Space::kInput, "input"},          {Space::kOutput, "output"},     {Space::kState, "state"},
    {Space::kNextState, "next_state"}, {Space::kConstant, "constant"}, {Space::kArena, "arena"},
    {Space::kLength, "length"},
};

bool is_written(Space space) { return space == Space::kOutput || space == Space::kNextState || space == Space::kArena; }

octet_role role_of(Space space) {
  return space == Space::kInput ? OCTET_INPUT : space == Space::kOutput ? OCTET_OUTPUT : OCTET_STATE;
}

bool is_symbol(const char* text) {
  size_t length = 0;
  for (; text[length] != '\0' && length <= kMostSymbolBytes; ++length) {
    char c = text[length];
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_letter && (length == 0 || !((c >= '0' && c <= '9') || c == '.' || c == '$'))) return false;
  }
  return length != 0 && length <= kMostSymbolBytes;
}

}  // namespace

void Plan::read(Json& json) {
  bool has_calls = false;
  json.object([&](std::string_view name) {
    if (name == "arena_bytes") {
      arena_bytes_ = json.integer(0, kMostArenaBytes);
    } else if (name == "buffers") {
      json.array([&](size_t) { read_buffer(json); });
    } else if (name == "calls") {
      has_calls = true;
      json.array([&](size_t index) { read_call(json, index); });
      end_of_calls_ = operands_.size();
    } else if (name == "copies") {
      json.array([&](size_t index) { read_copy(json, index); });
    } else if (name == "launches") {
      has_launches_ = true;
      json.array([&](size_t index) { read_launch(json, index); });
    } else if (name == "longest") {
      longest_ = json.integer(1, INT32_MAX);
    } else if (name == "version") {
      json.skip();
    } else {
      json.refuse(OCTET_UNSUPPORTED, "the artifact's plan has a member \"%.*s\", which this release does not know; %s",
                  static_cast<int>(name.size()), name.data(), kWhatToDo);
    }
  });
  if (!has_calls) json.refuse("the plan has no calls");
  if (has_launches_ && launches_.size() != calls_.size()) {
    json.refuse("the plan has %zu calls but %zu launches", calls_.size(), launches_.size());
  }
  if (has_launches_ && longest_ > 0) json.refuse("the inputs of a model for GPUs have one length");
}

void Plan::read_buffer(Json& json) {
  Buffer buffer{};
  size_t elements = 0;
  if (buffers_.size() == kMostBuffers) return json.refuse("the plan has more than %zu buffers", kMostBuffers);
  json.array([&](size_t index) {
    elements = index + 1;
    if (index > 2) return json.skip();
    if (index == 1) buffer.at = json.integer(0, kMostArenaBytes);
    if (index == 2) buffer.bytes = json.integer(0, kMostTensorBytes);
    if (index != 0) return;
    const char* name = json.string();
    for (const SpaceName& each : kSpaces) {
      buffer.space = each.space;
      if (strcmp(each.name, name) == 0) return;
    }
    json.refuse("buffer %zu is in the unknown space \"%.32s\"", buffers_.size(), name);
  });
  if (elements != 3) json.refuse("buffer %zu has %zu elements instead of 3", buffers_.size(), elements);
  if (!json.is_failed() && !buffers_.add(buffer)) json.note(OCTET_NO_MEMORY);
}

void Plan::read_call(Json& json, size_t index) {
  Call call{nullptr, operands_.size(), nullptr};
  size_t elements = 0, operand;
  if (index == kMostCalls) return json.refuse("the plan has more than %zu calls", kMostCalls);
  json.array([&](size_t element) {
    elements = element + 1;
    if (element > 1) return json.skip();
    if (element == 0) {
      call.symbol = json.string();
      if (!is_symbol(call.symbol)) json.refuse("call %zu has the invalid symbol \"%.64s\"", index, call.symbol);
      return;
    }
    json.array([&](size_t count) {
      if (count == kMostOperands) return json.refuse("call %zu has more than %zu operands", index, kMostOperands);
      add_operand(json, operand);
    });
  });
  if (json.is_failed()) return;
  if (elements != 2 || operands_.size() == call.first) return json.refuse("call %zu has no operands", index);
  if (!is_written(buffer(operands_.size() - 1).space)) {
    return json.refuse("call %zu (%.64s) writes to a read-only buffer", index, call.symbol);
  }
  if (!calls_.add(call)) json.note(OCTET_NO_MEMORY);
}

void Plan::read_copy(Json& json, size_t index) {
  Copy copy{};
  size_t elements = 0;
  if (index == kMostCopies) return json.refuse("the plan has more than %zu copies", kMostCopies);
  json.array([&](size_t element) {
    elements = element + 1;
    if (element > 1) return json.skip();
    add_operand(json, element == 0 ? copy.from : copy.to);
  });
  if (elements != 2) json.refuse("copy %zu has %zu elements instead of 2", index, elements);
  if (json.is_failed()) return;
  Space space = buffer(copy.to).space;
  if (space != Space::kOutput && space != Space::kNextState) {
    return json.refuse("the target of copy %zu is not an output", index);
  }
  if (buffer(copy.from).bytes != buffer(copy.to).bytes) {
    return json.refuse("the buffers of copy %zu have different sizes", index);
  }
  copy.bytes = static_cast<size_t>(buffer(copy.to).bytes);
  if (!copies_.add(copy)) json.note(OCTET_NO_MEMORY);
}

void Plan::read_launch(Json& json, size_t index) {
  int64_t numbers[kLaunchNumbers] = {};
  size_t elements = 0;
  if (index == kMostCalls) return json.refuse("the plan has more than %zu launches", kMostCalls);
  json.array([&](size_t element) {
    elements = element + 1;
    if (element >= kLaunchNumbers) return json.skip();
    numbers[element] = json.integer(element + 1 == kLaunchNumbers ? 0 : 1, kMostOfLaunch[element]);
  });
  if (elements != kLaunchNumbers) json.refuse("launch %zu has %zu elements instead of 7", index, elements);
  if (json.is_failed()) return;
  int64_t threads = numbers[3] * numbers[4] * numbers[5];
  if (threads > kMostThreadsOfBlock) {
    return json.refuse("launch %zu has blocks of %" PRId64 " threads, more than any GPU supports", index, threads);
  }
  auto number = [&](size_t element) { return static_cast<uint32_t>(numbers[element]); };
  Launch launch{{number(0), number(1), number(2)}, {number(3), number(4), number(5)}, number(6)};
  if (!launches_.add(launch)) json.note(OCTET_NO_MEMORY);
}

bool Plan::add_operand(Json& json, size_t& operand) {
  operand = operands_.size();
  // The members are sorted, so all buffers have been read before.
  int64_t index = json.integer(0, static_cast<int64_t>(buffers_.size()) - 1);
  if (json.is_failed()) return false;
  if (!operands_.add(static_cast<uint32_t>(index))) json.note(OCTET_NO_MEMORY);
  return !json.is_failed();
}

octet_status Plan::check(const Signature& signature, int64_t constant_bytes) {
  for (size_t index = 0; index < buffers_.size(); ++index) {
    octet_status status = check_buffer(index, signature, constant_bytes);
    if (status != OCTET_OK) return status;
  }
  octet_status status = find_tensor_operands();
  return status != OCTET_OK ? status : check_writes(signature);
}

octet_status Plan::check_buffer(size_t index, const Signature& signature, int64_t constant_bytes) const {
  const Buffer& buffer = buffers_[index];
  const char* name = kSpaces[static_cast<size_t>(buffer.space)].name;
  if (buffer.space == Space::kConstant || buffer.space == Space::kArena) {
    int64_t end = buffer.space == Space::kConstant ? constant_bytes : arena_bytes_;
    if (buffer.at % OCTET_ALIGNMENT == 0 && buffer.at <= end && buffer.bytes <= end - buffer.at) return OCTET_OK;
    return fail(OCTET_CORRUPT,
                "the config: buffer %zu has %" PRId64 " bytes at offset %" PRId64
                ", which is misaligned or beyond the %" PRId64 " bytes of space \"%s\"",
                index, buffer.bytes, buffer.at, end, name);
  }
  if (buffer.space == Space::kLength) {
    if (longest_ > 0 && buffer.at == 0 && buffer.bytes == kLengthBytes) return OCTET_OK;
    return fail(OCTET_CORRUPT, "the config: buffer %zu is not a length, or the plan has no longest one", index);
  }
  octet_role role = role_of(buffer.space);
  if (buffer.at >= signature.count(role)) {
    return fail(OCTET_CORRUPT, "the config: buffer %zu refers to %s %" PRId64 ", but the model has only %d", index,
                name, buffer.at, signature.count(role));
  }
  int64_t bytes = signature.tensor(role, static_cast<size_t>(buffer.at)).bytes;
  if (buffer.bytes == bytes) return OCTET_OK;
  return fail(OCTET_CORRUPT, "the config: buffer %zu has %" PRId64 " bytes, but %s %" PRId64 " has %" PRId64, index,
              buffer.bytes, name, buffer.at, bytes);
}

octet_status Plan::find_tensor_operands() {
  for (size_t operand = 0; operand < operands_.size(); ++operand) {
    const Buffer& found = buffer(operand);
    if (found.space == Space::kConstant || found.space == Space::kArena || found.space == Space::kLength) continue;
    List<TensorOperand>& found_operands = role_of(found.space) == OCTET_STATE ? states_ : tensors_;
    if (!found_operands.add({operand, static_cast<size_t>(found.at), found.space})) return OCTET_NO_MEMORY;
  }
  return OCTET_OK;
}

// Ensures that every output is written by some call.
octet_status Plan::check_writes(const Signature& signature) const {
  List<uint8_t> written[2];  // outputs, next states
  for (int group = 0; group < 2; ++group) {
    int32_t count = signature.count(group == 0 ? OCTET_OUTPUT : OCTET_STATE);
    for (int32_t index = 0; index < count; ++index) {
      if (!written[group].add(0)) return OCTET_NO_MEMORY;
    }
  }
  for (const TensorOperand& each : tensors_) {
    if (each.space == Space::kOutput) written[0][each.tensor] = 1;
  }
  for (const TensorOperand& each : states_) {
    if (each.space == Space::kNextState) written[1][each.tensor] = 1;
  }
  for (int group = 0; group < 2; ++group) {
    for (size_t index = 0; index < written[group].size(); ++index) {
      if (written[group][index] != 0) continue;
      const char* what = group == 0 ? "output" : "next state";
      return fail(OCTET_CORRUPT, "the config: no call of the plan writes %s %zu", what, index);
    }
  }
  return OCTET_OK;
}

}  // namespace octet
