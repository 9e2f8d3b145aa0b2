#!/bin/sh
# Installs what the tests need beside Rust and a C compiler, on Debian and its kin, as root or with sudo. Asks nothing, repeats
# harmlessly, and does nothing but look when all is there.
#
#   from apt            PostgreSQL server, Apache Derby and a Java runtime, ODBC drivers for PostgreSQL and SQLite
#   .test-tools/ibm     IBM's Db2 CLI/ODBC driver, out of the Python package ibm_db. Its libraries find each other by their own
#                       rpath, so no LD_LIBRARY_PATH is needed. It is IBM's, under IBM's licence: never committed, never shipped.
#   .test-tools/venv    Python tools: openapi-spec-validator
set -eu
cd "$(dirname "$0")/.."
tools=.test-tools
ibm_db=3.3.0

# 1. Debian packages: only those that are missing.
missing=
for package in postgresql libderby-java derby-tools odbc-postgresql libsqliteodbc libxml2 python3-venv python3-pip; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
command -v java >/dev/null || missing="$missing default-jre-headless"
if [ -n "$missing" ]; then
    as_root=
    [ "$(id -u)" -eq 0 ] || as_root=sudo
    echo "installing:$missing"
    $as_root apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

# 2. IBM's driver. The wheel is taken apart into a folder of its own and moved into place whole, so a broken run leaves nothing half done.
driver=$tools/ibm/clidriver/lib/libdb2.so
if [ "$(cat $tools/ibm/version 2>/dev/null)" != "$ibm_db" ] || [ ! -e $driver ]; then
    rm -rf $tools/ibm $tools/ibm.new
    mkdir -p $tools/ibm.new
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d $tools/ibm.new "ibm_db==$ibm_db"
    python3 - $tools/ibm.new/ibm_db-*.whl $tools/ibm.new <<'PYTHON'
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
wanted = [name for name in wheel.namelist() if name.startswith(("clidriver/", "ibm_db.libs/"))]
if "clidriver/lib/libdb2.so" not in wanted:
    sys.exit("this platform's ibm_db package carries no libdb2.so")
wheel.extractall(sys.argv[2], wanted)
PYTHON
    rm $tools/ibm.new/ibm_db-*.whl
    echo "$ibm_db" > $tools/ibm.new/version
    mv $tools/ibm.new $tools/ibm
fi

# 3. Python tools.
if [ ! -x $tools/venv/bin/openapi-spec-validator ]; then
    rm -rf $tools/venv
    python3 -m venv $tools/venv
    $tools/venv/bin/pip install --quiet --disable-pip-version-check openapi-spec-validator
fi

echo "Postgres:  $(ls -d /usr/lib/postgresql/*/bin | tail -1)"
echo "Derby:     $(ls /usr/share/java/derbynet.jar), $(command -v java)"
echo "Db2:       $driver (ibm_db $ibm_db)"
echo "ODBC:      $(ls /usr/lib/*/odbc/psqlodbcw.so) $(ls /usr/lib/*/odbc/libsqlite3odbc.so)"
echo "OpenAPI:   $tools/venv/bin/openapi-spec-validator"
