# System packages that the tests use: real Kafka clients in C, Java, Go and JavaScript, and the
# databases behind handlers.
# Sourced by ./test after environment.sh. A client that stays missing has its tests skipped by name.

java_is_new_enough() {
    local version
    version=$(javac -version 2>&1) && version=${version#javac } && ((${version%%.*} >= 17))
}

# Asked inside the module, because from 1.21 on Go fetches the toolchain that a go.mod wants.
go_is_new_enough() {
    local wanted found
    wanted=$(sed -n 's/^go 1\.\([0-9]*\).*/\1/p' "$root/tests/interop/go/go.mod")
    found=$(cd "$root/tests/interop/go" && go env GOVERSION 2>/dev/null) || return 1
    found=${found#go1.}
    ((${found%%[!0-9]*} >= wanted))
}

node_is_new_enough() {
    local version
    version=$(node --version 2>/dev/null) && version=${version#v} && ((${version%%.*} >= 18))
}

has_header() {
    g++ -E -x c++ - <<<"#include <$1>" >/dev/null 2>&1
}

# Prints the Debian packages whose programs are missing or too old, one a line.
missing_packages() {
    command -v kcat >/dev/null || echo kcat
    java_is_new_enough 2>/dev/null || echo default-jdk-headless
    command -v mvn >/dev/null || echo maven
    go_is_new_enough 2>/dev/null || echo golang-go
    node_is_new_enough 2>/dev/null || echo nodejs
    command -v npm >/dev/null || echo npm
    # The tests start servers of their own; postgresql also starts one, which they leave alone.
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || echo postgresql
    command -v redis-server >/dev/null || echo redis-server
    # librdkafka's own tests are built from source.
    command -v g++ >/dev/null || echo g++
    command -v make >/dev/null || echo make
    has_header openssl/ssl.h || echo libssl-dev
    has_header zlib.h || echo zlib1g-dev
    has_header rapidjson/rapidjson.h || echo rapidjson-dev
}

# Installs what is missing where it may, else says what to run; never stops the tests.
ensure_packages() {
    local missing package
    missing=($(missing_packages))
    ((${#missing[@]})) || return 0
    if command -v apt-get >/dev/null && ((EUID == 0)); then
        say "installing system packages for the tests: ${missing[*]}"
        apt-get update -qq >/dev/null || true
        # One at a time: a package that this Debian lacks must not keep the others away.
        for package in "${missing[@]}"; do
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null || true
        done
    fi
    # Debian's Go may be years old; the package registry has it as well.
    if ! go_is_new_enough 2>/dev/null; then
        say "installing Go into .venv"
        (install_lock tools/go.lock) || true
        hash -r
    fi
    missing=($(missing_packages))
    ((${#missing[@]})) || return 0
    say "these are missing or too old (JDK 17 and Node 18 are the oldest that will do): ${missing[*]}"
    say "their tests are skipped; to have them run:"
    printf '  Debian:  sudo apt-get install %s\n' "${missing[*]}" >&2
    printf '  macOS:   brew install kcat openjdk maven go node openssl rapidjson postgresql redis\n' >&2
}
