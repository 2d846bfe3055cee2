// Memory whose end touches a page that may not be read, so that reading one element too far crashes; the bytes before it
// hold a pattern that is checked when the buffer goes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ouzel::test {

template <class T>
class Guarded {
 public:
  explicit Guarded(int64_t count, T fill = T()) : count_(count) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    const size_t body = (bytes + kFront + page - 1) / page * page;
    size_ = body + page;
    base_ = static_cast<unsigned char*>(mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + body, page, PROT_NONE) != 0) {
      printf("cannot make guarded memory of %zu bytes\n", size_);
      abort();
    }
    front_ = base_ + body - bytes - kFront;
    memset(front_, kPattern, kFront);
    data_ = reinterpret_cast<T*>(front_ + kFront);
    for (int64_t i = 0; i < count; ++i) data_[i] = fill;
  }
  ~Guarded() {
    for (size_t i = 0; i < kFront; ++i) {
      if (front_[i] == kPattern) continue;
      printf("memory before a buffer was written\n");
      abort();
    }
    munmap(base_, size_);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  int64_t size() const { return count_; }

 private:
  static constexpr size_t kFront = 64;
  static constexpr unsigned char kPattern = 0xa5;
  int64_t count_;
  size_t size_;
  unsigned char *base_, *front_;
  T* data_;
};

}  // namespace ouzel::test
