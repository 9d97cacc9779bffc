package interop;

import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Where the cluster is, and clients of it. */
final class Settings {
    static final Duration POLL = Duration.ofMillis(200);
    static final long DEADLINE_S = 40;
    static final short EVERYWHERE = -1;
    private final Properties given = new Properties();
    private int topics;

    Settings(String file) throws Exception {
        try (Reader reader = Files.newBufferedReader(Path.of(file))) {
            given.load(reader);
        }
    }

    String get(String name) {
        return given.getProperty(name);
    }

    Map<String, Object> plain(Map<String, ?> more) {
        Map<String, Object> all = new java.util.HashMap<>(Map.of("bootstrap.servers", get("plaintext")));
        all.putAll(more);
        return all;
    }

    Admin admin(Map<String, ?> more) {
        return Admin.create(plain(more));
    }

    Producer<String, String> producer(Map<String, ?> more) {
        return new KafkaProducer<>(plain(more), new StringSerializer(), new StringSerializer());
    }

    Consumer<String, String> consumer(Map<String, ?> more) {
        Map<String, Object> all = plain(Map.of("auto.offset.reset", "earliest"));
        all.putAll(more);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(DEADLINE_S, TimeUnit.SECONDS);
    }

    /** A new topic of the check's own. */
    String topic(int partitions) throws Exception {
        String name = "open-java-" + get("run") + "-" + topics++;
        try (Admin admin = admin(Map.of())) {
            get(admin.createTopics(List.of(new NewTopic(name, partitions, EVERYWHERE))).all());
        }
        return name;
    }

    /** Sends values 0, 1, … to partitions in turn; returns what the last one was answered. */
    static void send(Producer<String, String> producer, String topic, int partitions, int count) throws Exception {
        List<java.util.concurrent.Future<?>> sent = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            sent.add(producer.send(new ProducerRecord<>(topic, number % partitions, "k" + number, "" + number)));
        }
        for (java.util.concurrent.Future<?> each : sent) {
            each.get(DEADLINE_S, TimeUnit.SECONDS);
        }
    }

    /** Polls until so many records have come. */
    static List<ConsumerRecord<String, String>> read(Consumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE_S * 1_000_000_000L;
        while (found.size() < count) {
            consumer.poll(POLL).forEach(found::add);
            Check.that(System.nanoTime() < deadline, found.size() + " of " + count + " records in time");
        }
        return found;
    }

    /** All of a topic's one partition, from the beginning. */
    List<ConsumerRecord<String, String>> readAll(String topic, int count) {
        try (Consumer<String, String> consumer = consumer(Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            return read(consumer, count);
        }
    }

    static List<String> values(Collection<ConsumerRecord<String, String>> records) {
        return records.stream().map(ConsumerRecord::value).toList();
    }

    static List<String> numbers(int count) {
        return java.util.stream.IntStream.range(0, count).mapToObj(Integer::toString).toList();
    }
}
