package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Acknowledgements, codecs, idempotence, and what a record carries. */
final class Producing {
    private static final int COUNT = 100;
    private final Settings settings;

    Producing(Settings settings) {
        this.settings = settings;
    }

    void checks(Map<String, Check> checks) {
        for (String acks : List.of("0", "1", "all")) {
            checks.put("produce: acks " + acks, () -> roundTrip(Map.of("acks", acks, "enable.idempotence", "false")));
        }
        for (String codec : List.of("gzip", "snappy", "lz4", "zstd")) {
            checks.put("produce: " + codec, () -> roundTrip(Map.of("compression.type", codec, "linger.ms", "20")));
        }
        checks.put("produce: idempotent", () -> roundTrip(Map.of("enable.idempotence", "true", "acks", "all")));
        checks.put("produce: the leader is killed", this::leaderIsKilled);
        checks.put("records: keys, headers, timestamps", this::record);
    }

    private void roundTrip(Map<String, String> options) throws Exception {
        String topic = settings.topic(1);
        try (Producer<String, String> producer = settings.producer(options)) {
            Settings.send(producer, topic, 1, COUNT);
        }
        Check.same(Settings.numbers(COUNT), Settings.values(settings.readAll(topic, COUNT)));
    }

    private void leaderIsKilled() throws Exception {
        String topic = settings.topic(1);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (Producer<String, String> producer = settings.producer(Map.of("linger.ms", "1"))) {
            for (int number = 0; number < 2000; number++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, "k", "" + number)));
                if (number == 1000) {
                    Main.ask("kill the leader");
                }
            }
            for (Future<RecordMetadata> each : sent) {
                each.get(Settings.DEADLINE_S, TimeUnit.SECONDS);
            }
        } finally {
            Main.ask("start the node again");
        }
        Check.same(Settings.numbers(2000), Settings.values(settings.readAll(topic, 2000)));
    }

    private void record() throws Exception {
        String topic = settings.topic(1);
        ProducerRecord<String, String> wanted = new ProducerRecord<>(topic, 0, 1_234_567L, "key", "value");
        wanted.headers().add("h", "1".getBytes(StandardCharsets.UTF_8)).add("h", null);
        try (Producer<String, String> producer = settings.producer(Map.of())) {
            producer.send(wanted).get(Settings.DEADLINE_S, TimeUnit.SECONDS);
            producer.send(new ProducerRecord<>(topic, 0, null, null)).get(Settings.DEADLINE_S, TimeUnit.SECONDS);
        }
        List<ConsumerRecord<String, String>> found = settings.readAll(topic, 2);
        Check.same("key", found.get(0).key());
        Check.same(1_234_567L, found.get(0).timestamp());
        Check.same(wanted.headers(), found.get(0).headers());
        Check.that(found.get(1).key() == null && found.get(1).value() == null, "nulls stay nulls");
    }
}
