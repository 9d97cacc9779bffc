package interop;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;

/** Whom the cluster lets in, and how. */
final class Security {
    private static final int COUNT = 10;
    private static final String MODULES = "org.apache.kafka.common.security.";
    private final Settings settings;

    Security(Settings settings) {
        this.settings = settings;
    }

    void checks(Map<String, Check> checks) {
        checks.put("TLS", () -> roundTrip(tls("tls", "SSL")));
        checks.put("mutual TLS", this::mutual);
        for (String mechanism : List.of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")) {
            checks.put("SASL " + mechanism, () -> sasl(mechanism));
        }
    }

    private Map<String, Object> tls(String listener, String protocol) {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", settings.get(listener));
        options.put("security.protocol", protocol);
        options.put("ssl.truststore.type", "PEM");
        options.put("ssl.truststore.location", settings.get("authority"));
        return options;
    }

    private void roundTrip(Map<String, Object> options) throws Exception {
        String topic = settings.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Producer<String, String> producer = settings.producer(options)) {
            Settings.send(producer, topic, 1, COUNT);
        }
        try (Consumer<String, String> consumer = settings.consumer(options)) {
            consumer.assign(List.of(partition));
            Check.same(Settings.numbers(COUNT), Settings.values(Settings.read(consumer, COUNT)));
        }
    }

    private void mutual() throws Exception {
        Map<String, Object> options = tls("mtls", "SSL");
        options.put("ssl.keystore.type", "PEM");
        options.put("ssl.keystore.location", settings.get("identity"));
        roundTrip(options);
    }

    private void sasl(String mechanism) throws Exception {
        roundTrip(login(mechanism, settings.get("password")));
        Map<String, Object> wrong = login(mechanism, "wrong");
        try (Producer<String, String> producer = settings.producer(wrong)) {
            Settings.send(producer, "open", 1, 1);
        } catch (Exception error) {
            String text = error + " " + error.getCause();
            Check.that(text.contains("SaslAuthenticationException"), "wanted a refusal, got " + text);
            return;
        }
        throw new AssertionError("a wrong password is taken");
    }

    private Map<String, Object> login(String mechanism, String password) {
        boolean isPlain = mechanism.equals("PLAIN");
        String module = MODULES + (isPlain ? "plain.PlainLoginModule" : "scram.ScramLoginModule");
        Map<String, Object> options = tls("sasl", "SASL_SSL");
        options.put("sasl.mechanism", mechanism);
        options.put(
                "sasl.jaas.config",
                module + " required username=\"" + settings.get("user") + "\" password=\"" + password + "\";");
        return options;
    }
}
