#!/bin/sh
# Every name must be greeted.
greeted=$(sh greet.sh | wc -l)
names=$(wc -l < names.txt)
if [ "$greeted" -eq "$names" ]; then
    echo "ok: $greeted of $names greeted"
else
    echo "failed: $greeted of $names greeted"
    exit 1
fi
