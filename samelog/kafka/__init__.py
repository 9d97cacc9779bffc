"""The Kafka protocol: any Kafka client, in any language, talks to a node through it."""
