"""Tables in the Apache Paimon format: the bytes, the merging, the commits and the reads; no Spark, no Kafka."""

from freshet._distribution import check_front_door

check_front_door()
