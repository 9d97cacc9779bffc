package interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;

/** Consumer groups, of both protocols. */
final class Groups {
    private static final int PARTITIONS = 6;
    private static final int COUNT = 120;
    private static final Map<String, String> CLASSIC =
            Map.of("session.timeout.ms", "6000", "heartbeat.interval.ms", "500");
    private static final String STRATEGY = "partition.assignment.strategy";
    private final Settings settings;

    Groups(Settings settings) {
        this.settings = settings;
    }

    void checks(Map<String, Check> checks) {
        checks.put("groups: members come and go", () -> comeAndGo(CLASSIC));
        checks.put("groups: cooperative", () -> comeAndGo(with(CLASSIC, Map.of(
                STRATEGY, "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"))));
        checks.put("groups: a regular expression", this::regularExpression);
        checks.put("groups: group.protocol=consumer", () -> comeAndGo(Map.of("group.protocol", "consumer")));
        checks.put("groups: static members", this::staticMembers);
        checks.put("groups: commits with metadata", this::commits);
        checks.put("groups: the coordinator is killed", this::coordinatorIsKilled);
    }

    private static Map<String, String> with(Map<String, String> one, Map<String, String> other) {
        Map<String, String> both = new HashMap<>(one);
        both.putAll(other);
        return both;
    }

    /** A consumer that is polled now and then, by the one thread there is. */
    private final class Member implements ConsumerRebalanceListener {
        final Consumer<String, String> consumer;
        final Set<String> seen = new TreeSet<>();
        int assignments;

        Member(String topic, Map<String, String> options) {
            this(options, topic);
            consumer.subscribe(List.of(topic), this);
        }

        Member(String group, Map<String, String> options, Pattern topics) {
            this(options, group);
            consumer.subscribe(topics, this);
        }

        private Member(Map<String, String> options, String group) {
            consumer = settings.consumer(with(options, Map.of("group.id", group, "enable.auto.commit", "false")));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            // what was read is committed at once
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments++;
        }

        void poll() {
            var records = consumer.poll(Duration.ofMillis(50));
            for (ConsumerRecord<String, String> record : records) {
                seen.add(record.partition() + "/" + record.offset());
            }
            if (!records.isEmpty()) {
                consumer.commitSync();
            }
        }
    }

    private static void until(List<Member> members, java.util.function.BooleanSupplier holds, String what) {
        long deadline = System.nanoTime() + Settings.DEADLINE_S * 1_000_000_000L;
        while (!holds.getAsBoolean()) {
            members.forEach(Member::poll);
            Check.that(System.nanoTime() < deadline, "not in time: " + what);
        }
    }

    private static void divided(List<Member> members) {
        until(
                members,
                () -> members.stream().mapToInt(m -> m.consumer.assignment().size()).sum() == PARTITIONS
                        && members.stream().noneMatch(m -> m.consumer.assignment().isEmpty()),
                members.size() + " members share the partitions");
    }

    private void write(String topic) throws Exception {
        try (Producer<String, String> producer = settings.producer(Map.of())) {
            Settings.send(producer, topic, PARTITIONS, COUNT);
        }
    }

    private void comeAndGo(Map<String, String> options) throws Exception {
        String topic = settings.topic(PARTITIONS);
        List<Member> members = new ArrayList<>();
        Set<String> seen = new TreeSet<>();
        write(topic);
        members.add(new Member(topic, options));
        divided(members);
        members.add(new Member(topic, options));
        divided(members);
        write(topic);
        until(members, () -> count(members, seen) == 2 * COUNT, "everything is read");
        Member first = members.remove(0);
        seen.addAll(first.seen);
        first.consumer.close();
        divided(members);
        write(topic);
        until(members, () -> count(members, seen) == 3 * COUNT, "everything is read by who is left");
        members.get(0).consumer.close();
        Member last = new Member(topic, options);
        divided(List.of(last));
        write(topic);
        until(List.of(last), () -> last.seen.size() >= COUNT, "a later member reads on");
        last.consumer.close();
        Check.same(COUNT, last.seen.size());
    }

    private static int count(List<Member> members, Set<String> before) {
        Set<String> all = new TreeSet<>(before);
        members.forEach(member -> all.addAll(member.seen));
        return all.size();
    }

    private void staticMembers() throws Exception {
        String topic = settings.topic(PARTITIONS);
        Member first = new Member(topic, with(CLASSIC, Map.of("group.instance.id", "one")));
        Member second = new Member(topic, with(CLASSIC, Map.of("group.instance.id", "two")));
        divided(List.of(first, second));
        int assignments = first.assignments;
        Set<TopicPartition> had = Set.copyOf(second.consumer.assignment());
        second.consumer.close();
        Member again = new Member(topic, with(CLASSIC, Map.of("group.instance.id", "two")));
        divided(List.of(first, again));
        Check.same(had, again.consumer.assignment());
        Check.same(assignments, first.assignments);
        first.consumer.close();
        again.consumer.close();
    }

    private void regularExpression() throws Exception {
        String topic = settings.topic(PARTITIONS);
        write(topic);
        List<Member> members = List.of(new Member(topic, CLASSIC, Pattern.compile(topic + "(-[0-9]+)?")));
        divided(members);
        until(members, () -> count(members, Set.of()) == COUNT, "everything is read");
        members.forEach(member -> member.consumer.close());
    }

    private void coordinatorIsKilled() throws Exception {
        String topic = settings.topic(PARTITIONS);
        List<Member> members = List.of(new Member(topic, CLASSIC), new Member(topic, CLASSIC));
        divided(members);
        write(topic);
        until(members, () -> count(members, Set.of()) == COUNT, "everything is read");
        Main.ask("kill the leader");
        try {
            write(topic);
            until(members, () -> count(members, Set.of()) == 2 * COUNT, "everything is read without the leader");
        } finally {
            Main.ask("start the node again");
        }
        members.forEach(member -> member.consumer.close());
    }

    private void commits() throws Exception {
        String topic = settings.topic(PARTITIONS);
        TopicPartition partition = new TopicPartition(topic, 3);
        try (Consumer<String, String> consumer = settings.consumer(Map.of("group.id", topic))) {
            consumer.assign(List.of(partition));
            Check.that(consumer.committed(Set.of(partition)).get(partition) == null, "nothing is committed yet");
            OffsetAndMetadata wanted = new OffsetAndMetadata(17, "a note");
            consumer.commitSync(Map.of(partition, wanted));
            Check.same(wanted, consumer.committed(Set.of(partition)).get(partition));
        }
    }
}
