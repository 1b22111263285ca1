#include "net/reflection.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <set>
#include <vector>

#include "common/utf8.h"
#include "net/descriptors.h"
#include "text/problem.h"
#include "text/protobuf.h"

namespace octet::plane {

namespace {

constexpr uint64_t kStatusInvalidArgument = 3, kStatusNotFound = 5;

// Field numbers of ServerReflectionRequest and ServerReflectionResponse.
constexpr uint64_t kHost = 1, kByFilename = 3, kBySymbol = 4, kByExtension = 5, kExtensionsOf = 6, kListServices = 7;
constexpr uint64_t kOriginal = 2, kFiles = 4, kExtensionNumbers = 5, kServices = 6, kError = 7;

// A protocol file and all names that it defines.
struct File {
  std::string_view descriptor, name;
  std::set<std::string, std::less<>> symbols, messages;
  std::vector<std::string> services;
};

std::string_view first_text(std::string_view message, uint64_t number) {
  MessageReader reader(message);
  for (Field field; reader.next(field);) {
    if (field.is(number, WireType::kBytes)) return field.bytes;
  }
  return {};
}

std::string within(const std::string& scope, std::string_view name) {
  return scope.empty() ? std::string(name) : (scope + ".").append(name);
}

// The values of an enumeration belong to the scope that contains the enumeration.
void add_enumeration(File& file, const std::string& scope, std::string_view its) {
  MessageReader reader(its);
  for (Field field; reader.next(field);) {
    if (field.number == 1) file.symbols.insert(within(scope, field.bytes));
    if (field.number == 2) file.symbols.insert(within(scope, first_text(field.bytes, 1)));
  }
}

void add_service(File& file, const std::string& scope, std::string_view its) {
  std::string name = within(scope, first_text(its, 1));
  file.services.push_back(name);
  file.symbols.insert(name);
  MessageReader reader(its);
  for (Field field; reader.next(field);) {
    if (field.number == 2) file.symbols.insert(within(name, first_text(field.bytes, 1)));
  }
}

void add_message(File& file, const std::string& scope, std::string_view its) {
  constexpr uint64_t kMember = 2, kNested = 3, kEnumeration = 4, kOneof = 8;
  std::string name = within(scope, first_text(its, 1));
  file.messages.insert(name);
  file.symbols.insert(name);
  MessageReader reader(its);
  for (Field field; reader.next(field);) {
    if (field.number == kMember || field.number == kOneof)
      file.symbols.insert(within(name, first_text(field.bytes, 1)));
    if (field.number == kNested) add_message(file, name, field.bytes);
    if (field.number == kEnumeration) add_enumeration(file, name, field.bytes);
  }
}

File read_file(std::string_view descriptor) {
  constexpr uint64_t kName = 1, kPackage = 2, kMessage = 4, kEnumeration = 5, kService = 6;
  File file{descriptor, first_text(descriptor, kName), {}, {}, {}};
  std::string package(first_text(descriptor, kPackage));
  MessageReader reader(descriptor);
  for (Field field; reader.next(field);) {
    if (field.number == kMessage) add_message(file, package, field.bytes);
    if (field.number == kEnumeration) add_enumeration(file, package, field.bytes);
    if (field.number == kService) add_service(file, package, field.bytes);
  }
  return file;
}

const std::vector<File>& files() {
  static const std::vector<File> all = [] {
    std::vector<File> read;
    std::transform(std::begin(kDescriptors), std::end(kDescriptors), std::back_inserter(read), read_file);
    return read;
  }();
  return all;
}

void refuse(MessageWriter& answer, uint64_t status, std::string_view what, std::string_view name = {}) {
  std::string text(what);
  if (!name.empty()) text.append(" ").append(brief(name));
  answer.bytes(kError, MessageWriter().varint(1, status).bytes(2, text).text());
}

void file_that(MessageWriter& answer, const char* missing, std::string_view name,
               const std::function<bool(const File&)>& is_meant) {
  auto found = std::find_if(files().begin(), files().end(), is_meant);
  if (found == files().end()) return refuse(answer, kStatusNotFound, missing, name);
  answer.bytes(kFiles, MessageWriter().bytes(1, found->descriptor).text());  // none of the files imports another
}

void list_services(MessageWriter& answer) {
  MessageWriter list;
  for (const File& file : files()) {
    for (const std::string& name : file.services) list.bytes(1, MessageWriter().bytes(1, name).text());
  }
  answer.bytes(kServices, list.text());
}

void extensions_of(MessageWriter& answer, std::string_view type) {
  bool is_known =
      std::any_of(files().begin(), files().end(), [&](const File& file) { return file.messages.count(type) > 0; });
  if (!is_known) return refuse(answer, kStatusNotFound, "unknown message", type);
  answer.bytes(kExtensionNumbers, MessageWriter().bytes(1, type).text());  // proto3 has no extensions
}

}  // namespace

bool is_reflection(std::string_view path) {
  return path == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" ||
         path == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

std::string reflection_response(std::string_view request) {
  std::string_view host;
  Field request_field;
  MessageReader reader(request);
  for (Field field; reader.next(field);) {
    if (field.type != WireType::kBytes) continue;
    if (!is_utf8(field.bytes)) refuse_message();  // the text is part of the response, so it must be valid UTF-8
    if (field.number == kHost) host = field.bytes;
    if (field.number >= kByFilename && field.number <= kListServices) request_field = field;
  }
  MessageWriter answer;
  answer.bytes(kHost, host).bytes(kOriginal, request);
  std::string_view name = request_field.bytes;
  switch (request_field.number) {
    case kByFilename:
      file_that(answer, "unknown file", name, [&](const File& file) { return file.name == name; });
      break;
    case kBySymbol:
      file_that(answer, "unknown symbol", name, [&](const File& file) { return file.symbols.count(name) > 0; });
      break;
    case kByExtension:
      refuse(answer, kStatusNotFound, "there are no extensions");
      break;
    case kExtensionsOf:
      extensions_of(answer, name);
      break;
    case kListServices:
      list_services(answer);
      break;
    default:
      refuse(answer, kStatusInvalidArgument, "the request has no message_request");
  }
  return answer.take();
}

}  // namespace octet::plane
