package interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.AppInfoParser;

/**
 * Uses each feature once and prints what came of it, an object of JSON a line: {"feature", "ok", "why"}. The first
 * line names the client. {"ask": …} asks whoever started this program to do something; it answers with a line.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        Settings settings = new Settings(arguments[0]);
        System.out.println(
                "{\"client\": \"kafka-clients (Java)\", \"version\": " + quote(AppInfoParser.getVersion()) + "}");
        Map<String, Check> checks = new LinkedHashMap<>();
        new Producing(settings).checks(checks);
        new Reading(settings).checks(checks);
        new Groups(settings).checks(checks);
        new Transactions(settings).checks(checks);
        new Administration(settings).checks(checks);
        new Security(settings).checks(checks);
        checks.forEach(Main::run);
        System.exit(0);
    }

    private static void run(String feature, Check check) {
        String why = "";
        try {
            check.run();
        } catch (Exception | AssertionError | NoClassDefFoundError | NoSuchMethodError error) {
            why = error.toString() + where(error);
        }
        System.out.println(
                "{\"feature\": " + quote(feature) + ", \"ok\": " + why.isEmpty() + ", \"why\": " + quote(why) + "}");
    }

    private static String where(Throwable error) {
        for (StackTraceElement place : error.getStackTrace()) {
            if (place.getClassName().startsWith("interop.") && !place.getClassName().endsWith("Check")) {
                return " (" + place.getFileName() + ":" + place.getLineNumber() + ")";
            }
        }
        return "";
    }

    static void ask(String what) throws java.io.IOException {
        System.out.println("{\"ask\": " + quote(what) + "}");
        while (System.in.read() != '\n') {
            // until the answer's line is over
        }
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                quoted.append('\\').append(each);
            } else {
                quoted.append(each < ' ' ? ' ' : each);
            }
        }
        return quoted.append('"').toString();
    }
}
