// Runs the cases of a case file without Python: op_runner ISA THREADS CASES RESULTS. The results are the wanted arrays of
// all steps of all cases, float32, one after another. Used where the Python module cannot run: under sanitizers and
// for other processors in an emulator. "widest" as ISA sets no cap.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <memory>
#include <string>

#include "runtime/plan.h"
#include "tests/case_reader.h"

namespace {

void run_case(const std::shared_ptr<ouzel::Machine>& machine, ouzel::test::Case& found, std::ofstream& results) {
  ouzel::Plan plan(machine, found.program);
  plan.ensure_blocks(found.blocks);
  for (ouzel::test::CaseStep& step : found.steps) {
    plan.run(step.args);
    for (const ouzel::WantedArray& wanted : step.args.wanted) {
      const auto bytes = static_cast<std::streamsize>(wanted.rows * wanted.width * 4);
      results.write(reinterpret_cast<const char*>(wanted.data), bytes);
    }
  }
}

int run_all(const std::string& isa, int threads, const std::string& cases, const std::string& results) {
  const auto machine = std::make_shared<ouzel::Machine>(isa == "widest" ? "" : isa, threads);
  ouzel::test::CaseReader reader(cases);
  std::ofstream out(results, std::ios::binary);
  out.exceptions(std::ios::failbit | std::ios::badbit);
  ouzel::test::Case found;
  int count = 0;
  for (; reader.next(&found); ++count) run_case(machine, found, out);
  std::printf("%d cases, %s, %d threads\n", count, machine->kernels().name, threads);
  return 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: op_runner ISA|widest THREADS CASES RESULTS\n");
    return 2;
  }
  return run_all(argv[1], std::atoi(argv[2]), argv[3], argv[4]);
} catch (const std::exception& error) {
  std::fprintf(stderr, "op_runner: %s\n", error.what());
  return 1;
}
