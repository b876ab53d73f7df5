#!/bin/sh
# Chat templates against jinja2's renderings: the snippets of jinja_features and every shared
# template with all its conversations, errors that templates raise included.
. "$(dirname "$0")/lib.sh"
need_shared
gold=$BUILD/tests/test_chatgold
[ -x "$gold" ] || skip_all "unit binaries are not built"

ok "jinja_features: every snippet prints what Python prints" \
    "'$gold' - '$SHARED/golden/chat_templates/jinja_features.json'"
for f in "$SHARED"/golden/chat_templates/*.json; do
    name=$(basename "$f" .json)
    [ "$name" = jinja_features ] && continue
    ok "$name: every conversation renders as jinja2 renders it" \
        "'$gold' '$SHARED/data/chat_templates/$name.jinja' '$f'"
done
done_testing
