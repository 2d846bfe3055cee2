# Shared by the scripts beside it: finding Python, system packages, virtual environments. Read with `.`, not run.

say() { printf '== %s\n' "$*" >&2; }
fail() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The first Python from 3.10 on: $PYTHON, or what is on the path. Prints its name.
find_python() {
  local name
  for name in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python3.10 python}; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  return 1
}

has_headers() {
  "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}

# Debian packages that building needs and that are not there, for the Python named $1 (empty: none was found).
missing_for_build() {
  local python=$1 version=3
  if [ -z "$python" ]; then
    echo python3 python3-venv python3-dev
  else
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "python$version-venv"
    has_headers "$python" || echo "python$version-dev"
  fi
  command -v c++ >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || echo g++
}

# Installs Debian packages when we may, else names them in one line and ends.
need_packages() {
  [ $# -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    fail "missing on this system: $*. Install them (Debian, Ubuntu: sudo apt-get install -y $*) and start again."
  fi
  say "installing system packages: $*"
  local log
  log=$(mktemp)
  if ! { DEBIAN_FRONTEND=noninteractive apt-get update &&
         DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    fail "apt-get could not install: $*"
  fi
  rm -f "$log"
}

# Sets $python, with everything that building the package needs.
need_build_tools() {
  python=$(find_python || true)
  # The names hold no blanks: each word is a package.
  # shellcheck disable=SC2046
  need_packages $(missing_for_build "$python")
  python=$(find_python) || fail "Python 3.10 or newer is needed; name it with PYTHON=/path/to/python3"
}

# A virtual environment in the folder $1, made again when its Python is another or gone.
need_venv() {
  if ! "$1/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
    say "making the virtual environment $1 with $("$python" --version)"
    "$python" -m venv --clear "$1"
  fi
}

# One number for everything that the installed package is made of.
source_hash() {
  "$python" - <<'PYTHON'
import hashlib, pathlib
total = hashlib.sha256()
paths = [p for top in ("src", "native") for p in pathlib.Path(top).rglob("*")]
paths += [pathlib.Path(name) for name in ("CMakeLists.txt", "pyproject.toml", "LICENSE", "scripts/common.sh")]
for path in sorted(paths):
    if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
        total.update(str(path).encode() + b"\0" + path.read_bytes())
print(total.hexdigest())
PYTHON
}

# pip with its output shown only when it fails.
quiet_pip() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    fail "this failed: $*"
  fi
  rm -f "$log"
}

# Installs the package, as $2 ("." or ".[test]"), into the environment $1 when its sources have changed.
need_package() {
  local stamp=$1/ouzel.stamp now
  now="$2 $(source_hash)"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$now" ]; then
    say "installing Ouzel into $1 (this compiles the C++ core: a minute or two)"
    rm -f "$stamp"
    # A build folder that stays makes the next build quick.
    quiet_pip "$1/bin/python" -m pip install --quiet --upgrade "$2" --config-settings=build-dir=".cache/build/{wheel_tag}"
    printf '%s' "$now" >"$stamp"
  fi
}
