"""librdkafka, which no other room uses: clients and producers of a log, and questions to brokers."""
