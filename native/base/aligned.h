// Memory aligned to a cache line, uninitialised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace ouzel {

inline constexpr size_t kAlignment = 64;
inline constexpr int64_t kAlignedFloats = kAlignment / sizeof(float);

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

// Owns `size()` floats. Contents are lost when it is resized; may throw std::bad_alloc, and then holds nothing.
class AlignedFloats {
 public:
  AlignedFloats() = default;
  explicit AlignedFloats(int64_t size) { reset(size); }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(float)); }

  // Makes it hold exactly `size` floats.
  void reset(int64_t size) {
    data_.reset();
    size_ = 0;
    if (size <= 0) return;
    const size_t bytes = static_cast<size_t>(size) * sizeof(float);
    data_.reset(static_cast<float*>(::operator new(bytes, std::align_val_t{kAlignment})));
    size_ = size;
  }

  // Makes it hold at least `size` floats.
  void reserve(int64_t size) {
    if (size > size_) reset(size);
  }

 private:
  struct Free {
    void operator()(float* p) const { ::operator delete(p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t size_ = 0;
};

}  // namespace ouzel
