#!/bin/sh
# a comment
echo $1
