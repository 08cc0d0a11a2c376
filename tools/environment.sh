# The shared half of ./headrace and ./test: finds a Python and keeps .venv in step with a lock file.
# Sourced with $root set to the checkout. Everything it says goes to standard error.

venv="$root/.venv"

say() { printf 'headrace: %s\n' "$*" >&2; }

die() {
    say "$1"
    shift
    while (($#)); do
        printf '  %s\n' "$1" >&2
        shift
    done
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# Prints the first Python 3.11 or newer on the PATH.
find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    die "Python 3.11 or newer is needed and none is on the PATH." \
        "Debian:  apt-get install python3 python3-venv" \
        "macOS:   brew install python@3.13"
}

# True when .venv holds exactly what the given lock file names. The stamp is a copy of the lock
# that was installed, so an edited lock is noticed without a hash tool.
is_current() { [[ -x $venv/bin/python ]] && cmp -s "$root/$1" "$venv/$1"; }

make_venv() {
    local python
    python=$(find_python) || exit 1
    rm -rf "$venv"
    say "making .venv with $("$python" --version 2>&1) ($python)"
    if command -v uv >/dev/null && uv venv --quiet --python "$python" "$venv" >&2; then
        return
    fi
    # Debian keeps ensurepip in a package of its own. With pip outside the environment it is not
    # needed; without any pip at all, that package is the only way.
    if "$python" -c 'from ensurepip import version' 2>/dev/null; then
        "$python" -m venv "$venv" >&2 || die "python3 -m venv failed; its words are above."
    elif "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m venv --without-pip "$venv" >&2 || die "python3 -m venv failed; its words are above."
    elif command -v apt-get >/dev/null && ((EUID == 0)); then
        say "installing python3-venv"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } \
            >/dev/null || die "apt-get could not install python3-venv; its words are above."
        "$python" -m venv "$venv" >&2 || die "python3 -m venv failed; its words are above."
    else
        die "this Python can make no environment: neither ensurepip nor pip is there." \
            "Debian:  sudo apt-get install python3-venv" \
            "then run this command again."
    fi
}

# Installs a lock file into .venv. uv is tried first for its speed, then whichever pip there is.
install_lock() {
    local lock="$root/$1" python
    if command -v uv >/dev/null; then
        if uv pip install --quiet --compile-bytecode --python "$venv/bin/python" --require-hashes -r "$lock" >&2
        then return; fi
        say "uv could not install $1; trying pip"
    fi
    local pip_install=(install --quiet --disable-pip-version-check --require-hashes -r "$lock")
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        "$venv/bin/python" -m pip "${pip_install[@]}" >&2
    elif python=$(find_python) && "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m pip --python "$venv/bin/python" "${pip_install[@]}" >&2
    else
        "$venv/bin/python" -m ensurepip >/dev/null && "$venv/bin/python" -m pip "${pip_install[@]}" >&2
    fi || die "the packages of $1 could not be installed; the reason is above." \
        "Is the package registry reachable? pip and uv read their usual settings (PIP_INDEX_URL, UV_INDEX_URL)."
}

# Puts src/ on the path of .venv, relative to it so that the checkout may be moved.
link_source() {
    local site
    for site in "$venv"/lib/python3.*/site-packages; do
        printf '../../../../src\n' >"$site/headrace-source.pth"
    done
}

# Brings .venv in step with the lock file; two first starts at once take turns where flock is there.
ensure_environment() {
    local lock=$1
    mkdir -p "$root/.cache"
    exec 9>"$root/.cache/environment.lock"
    if command -v flock >/dev/null && ! flock -n 9; then
        say "waiting for another start that is making .venv"
        flock 9
    fi
    if ! is_current "$lock"; then
        { [[ -x $venv/bin/python ]] && is_new_enough "$venv/bin/python"; } || make_venv
        say "installing the packages of $lock into .venv"
        install_lock "$lock"
        link_source
        # A start may be told to write no bytecode; it should not have to compile each time either.
        "$venv/bin/python" -m compileall -q "$root/src" >&2 || true
        cp "$root/$lock" "$venv/$lock"
        say "the environment is ready"
    fi
    exec 9>&-
}
