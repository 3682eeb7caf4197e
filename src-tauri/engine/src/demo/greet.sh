#!/bin/sh
# Greets each name in names.txt.
while read -r name; do
    echo "hi $name"
done < names.txt
