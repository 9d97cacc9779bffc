package interop;

import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** Places in a log: by number and by time. */
final class Reading {
    private static final int COUNT = 100;
    private final Settings settings;

    Reading(Settings settings) {
        this.settings = settings;
    }

    void checks(Map<String, Check> checks) {
        checks.put("consume: seek", this::seek);
        checks.put("consume: by timestamp", this::byTimestamp);
    }

    private String written() throws Exception {
        String topic = settings.topic(1);
        try (Producer<String, String> producer = settings.producer(Map.of())) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(topic, 0, 1000L + number, "k", "" + number));
            }
            producer.flush();
        }
        return topic;
    }

    private void seek() throws Exception {
        TopicPartition partition = new TopicPartition(written(), 0);
        try (Consumer<String, String> consumer = settings.consumer(Map.of())) {
            consumer.assign(List.of(partition));
            for (long place : new long[] {40, 7, 99}) {
                consumer.seek(partition, place);
                Check.same("" + place, Settings.read(consumer, 1).get(0).value());
            }
            consumer.seekToEnd(List.of(partition));
            Check.same((long) COUNT, consumer.position(partition));
            consumer.seekToBeginning(List.of(partition));
            Check.same(0L, consumer.position(partition));
            Check.same(Map.of(partition, (long) COUNT), consumer.endOffsets(List.of(partition)));
            Check.same(Map.of(partition, 0L), consumer.beginningOffsets(List.of(partition)));
        }
    }

    private void byTimestamp() throws Exception {
        TopicPartition partition = new TopicPartition(written(), 0);
        try (Consumer<String, String> consumer = settings.consumer(Map.of())) {
            var found = consumer.offsetsForTimes(Map.of(partition, 1050L)).get(partition);
            Check.same(50L, found.offset());
            Check.same(1050L, found.timestamp());
            Check.that(consumer.offsetsForTimes(Map.of(partition, 9999L)).get(partition) == null, "nothing so late");
            consumer.assign(List.of(partition));
            consumer.seek(partition, found.offset());
            Check.same("50", Settings.read(consumer, 1).get(0).value());
        }
    }
}
