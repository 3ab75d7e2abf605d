#!/bin/sh
# Usage: ask.sh WHAT. Say what is about to be installed; where a person sits at the terminal, ask
# first, and exit with 1 on no. Without one (a continuous integration, a pipe) go on.
set -u
echo "$1"
[ -t 0 ] || exit 0
printf 'Go on? [y/N] '
read -r answer || answer=
case $answer in
[yY]*) exit 0 ;;
esac
echo "Nothing was installed."
exit 1
