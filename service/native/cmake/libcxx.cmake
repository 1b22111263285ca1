# The C++ library. Only the parts that the data plane uses are compiled; zig would compile all of it, file by file. The
# macros are those of zig's own build, except two. They leave out the definitions for programs that were compiled with
# older headers, which contradict today's, and the demangler of `terminate`.

cmake_path(GET ZIG PARENT_PATH zig_folder)
set(zig_library ${zig_folder}/lib)
set(libcxx
  algorithm call_once charconv chrono condition_variable error_category exception functional future hash ios
  ios.instantiations iostream locale memory mutex new_handler new_helpers ostream random ryu/d2fixed ryu/d2s ryu/f2s
  stdexcept string system_error thread typeinfo variant verbose_abort condition_variable_destructor)
set(libcxxabi
  abort_message cxa_aux_runtime cxa_default_handlers cxa_exception cxa_exception_storage cxa_guard cxa_handlers
  cxa_personality cxa_thread_atexit cxa_vector cxa_virtual fallback_malloc private_typeinfo stdlib_exception
  stdlib_new_delete stdlib_stdexcept stdlib_typeinfo)
list(TRANSFORM libcxx REPLACE "(.+)" "${zig_library}/libcxx/src/\\1.cpp")
list(TRANSFORM libcxxabi REPLACE "(.+)" "${zig_library}/libcxxabi/src/\\1.cpp")
add_library(octet_libcxx OBJECT ${libcxxabi} ${libcxx})
target_compile_features(octet_libcxx PRIVATE cxx_std_23)
target_compile_options(octet_libcxx PRIVATE -w -ffunction-sections -fdata-sections -fvisibility-inlines-hidden)
target_compile_definitions(octet_libcxx PRIVATE
  _LIBCPP_BUILDING_LIBRARY _LIBCXXABI_BUILDING_LIBRARY LIBCXX_BUILDING_LIBCXXABI LIBCXXABI_NON_DEMANGLING_TERMINATE
  _LIBCPP_AVAILABILITY_MINIMUM_HEADER_VERSION=99 LIBC_NAMESPACE=__llvm_libc_common_utils)
target_include_directories(octet_libcxx PRIVATE
  ${zig_library}/libcxx/src ${zig_library}/libcxx/libc ${zig_library}/libcxxabi/include)
target_link_libraries(octet_libcxx PUBLIC unwind)
