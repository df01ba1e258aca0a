#!/bin/sh
# KAFKA_CONTROLLER_LISTENER_NAMES=X becomes controller.listener.names=X; a double underscore is one.
set -eu
env | sed -n 's/^KAFKA_\([A-Z0-9_]*=\)/\1/p' | while IFS='=' read -r name value; do
    key=$(printf '%s' "$name" | sed 's/__/@/g; s/_/./g; s/@/_/g' | tr '[:upper:]' '[:lower:]')
    printf '%s=%s\n' "$key" "$value"
done > /tmp/server.properties
set -- -Xmx512m -XX:+UseSerialGC -Dlog4j2.configurationFile=/opt/kafka/log4j2.properties -cp '/opt/kafka/libs/*'
# A container that is started again keeps its logs.
[ -d /tmp/kraft-logs ] ||
    java "$@" kafka.tools.StorageTool format --standalone -t kAAAAAAAAAAAAAAAAAAAAA -c /tmp/server.properties
exec java "$@" kafka.Kafka /tmp/server.properties
