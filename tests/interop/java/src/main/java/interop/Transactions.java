package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Transactions, and topics of which only the newest record of each key is kept. */
final class Transactions {
    private static final int COUNT = 40;
    private static final int KEYS = 3;
    private static final Map<String, String> COMMITTED = Map.of("isolation.level", "read_committed");
    private final Settings settings;

    Transactions(Settings settings) {
        this.settings = settings;
    }

    void checks(Map<String, Check> checks) {
        checks.put("transactions: committed, aborted", this::committed);
        checks.put("transactions: a group's offsets", this::offsets);
        checks.put("transactions: fencing", this::fencing);
        checks.put("transactions: the leader is killed", this::leaderIsKilled);
        checks.put("compacted topics", this::compacted);
    }

    private Producer<String, String> producer(String id) {
        Producer<String, String> producer = settings.producer(Map.of("transactional.id", id));
        producer.initTransactions();
        return producer;
    }

    /** What is committed in a topic's one partition, which is to be 0, 1, … */
    private void wantNumbers(String topic, int count) {
        try (Consumer<String, String> consumer = settings.consumer(COMMITTED)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            Check.same(Settings.numbers(count), Settings.values(Settings.read(consumer, count)));
            Check.same(consumer.endOffsets(List.of(partition)).get(partition), consumer.position(partition));
        }
    }

    private void committed() throws Exception {
        String topic = settings.topic(1);
        try (Producer<String, String> producer = producer(topic)) {
            for (int number = 0; number < COUNT; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "aborted"));
                producer.flush();
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "" + number));
                producer.commitTransaction();
            }
        }
        wantNumbers(topic, COUNT);
    }

    private void offsets() throws Exception {
        String source = settings.topic(1);
        String sink = settings.topic(1);
        try (Producer<String, String> plain = settings.producer(Map.of())) {
            Settings.send(plain, source, 1, COUNT);
        }
        Map<String, Object> group = new HashMap<>(COMMITTED);
        group.putAll(Map.of("group.id", sink, "enable.auto.commit", "false", "max.poll.records", "7"));
        for (int done = 0; done < COUNT; ) {
            try (Producer<String, String> producer = producer(source);
                    Consumer<String, String> consumer = settings.consumer(group)) {
                consumer.subscribe(List.of(source));
                done += move(producer, consumer, sink);
                producer.commitTransaction();
                if (done < COUNT) {
                    move(producer, consumer, sink);
                    producer.abortTransaction();
                }
            }
        }
        wantNumbers(sink, COUNT);
    }

    /** Copies what comes next in a transaction that is left open: how many records. */
    private static int move(Producer<String, String> producer, Consumer<String, String> consumer, String sink) {
        List<ConsumerRecord<String, String>> found = Settings.read(consumer, 1);
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> next = new HashMap<>();
        for (ConsumerRecord<String, String> each : found) {
            producer.send(new ProducerRecord<>(sink, each.value()));
            next.put(new TopicPartition(each.topic(), 0), new OffsetAndMetadata(each.offset() + 1));
        }
        producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
        return found.size();
    }

    private void fencing() throws Exception {
        String topic = settings.topic(1);
        try (Producer<String, String> older = producer(topic)) {
            older.beginTransaction();
            older.send(new ProducerRecord<>(topic, "lost")).get();
            try (Producer<String, String> newer = producer(topic)) {
                boolean fenced = false;
                try {
                    older.commitTransaction();
                } catch (ProducerFencedException | InvalidProducerEpochException refused) {
                    fenced = true;
                }
                Check.that(fenced, "the older one may commit");
                newer.beginTransaction();
                newer.send(new ProducerRecord<>(topic, "0"));
                newer.commitTransaction();
            }
        }
        wantNumbers(topic, 1);
    }

    private void leaderIsKilled() throws Exception {
        String topic = settings.topic(1);
        try (Producer<String, String> producer = producer(topic)) {
            for (int number = 0; number < COUNT; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, "" + number));
                if (number == COUNT / 2) {
                    Main.ask("kill the leader");
                }
                producer.commitTransaction();
            }
        } finally {
            Main.ask("start the node again");
        }
        wantNumbers(topic, COUNT);
    }

    private void compacted() throws Exception {
        String topic = "open-java-compacted-" + settings.get("run");
        NewTopic compact = new NewTopic(topic, 1, Settings.EVERYWHERE).configs(Map.of(
                "cleanup.policy", "compact", "segment.bytes", "65536", "min.cleanable.dirty.ratio", "0"));
        try (Admin admin = settings.admin(Map.of())) {
            Settings.get(admin.createTopics(List.of(compact)).all());
        }
        String filler = "x".repeat(33_000);
        try (Producer<String, String> producer = settings.producer(Map.of("linger.ms", "0"))) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(topic, "k" + number % KEYS, number + filler)).get();
            }
            Check.that(refused(producer, topic), "a record without a key is taken");
        }
        long deadline = System.nanoTime() + Settings.DEADLINE_S * 1_000_000_000L;
        while (left(topic).size() > COUNT / 2) {
            Check.that(System.nanoTime() < deadline, "not compacted in time");
        }
    }

    private static boolean refused(Producer<String, String> producer, String topic) throws InterruptedException {
        try {
            producer.send(new ProducerRecord<>(topic, "no key")).get();
            return false;
        } catch (ExecutionException refused) {
            return refused.getCause() instanceof InvalidRecordException;
        }
    }

    /** The offsets of the records that are there; the newest record of each key is one of them. */
    private List<Long> left(String topic) {
        List<Long> offsets = new ArrayList<>();
        try (Consumer<String, String> consumer = settings.consumer(Map.of())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (consumer.position(partition) < COUNT) {
                for (ConsumerRecord<String, String> each : Settings.read(consumer, 1)) {
                    Check.same("k" + each.offset() % KEYS, each.key());
                    offsets.add(each.offset());
                }
            }
        }
        for (long newest = COUNT - KEYS; newest < COUNT; newest++) {
            Check.that(offsets.contains(newest), newest + " is gone");
        }
        return offsets;
    }
}
