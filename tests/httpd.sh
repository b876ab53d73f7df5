# httpd.sh - sourced by tests that talk to a server of their own (tests/httpd.c).
#
#   have_httpd     whether it is built and the programs have libcurl; else the reason is in $why
#   start_httpd    starts it: $URL; it ends when descriptor 9 is closed, at the end of the script
have_httpd() {
    why="no test server is built (make unit-binaries)"
    [ -x "$BUILD/tests/httpd" ] || return 1
    why="built without libcurl"
    verl-reward --version | grep -q '^curl *[0-9]'
}
start_httpd() {
    export no_proxy=127.0.0.1
    mkfifo in
    "$BUILD/tests/httpd" <in >port 9>&- &
    exec 9>in
    i=0
    until [ -s port ] || [ $i = 100 ]; do
        sleep 0.05
        i=$((i + 1))
    done
    URL=http://127.0.0.1:$(cat port)
}
