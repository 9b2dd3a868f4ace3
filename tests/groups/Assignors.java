// Kafka's own assignors behind a text format, for test_against_java.py: a command a line in, an answer a line out.
//
//   write ASSIGNOR TOPICS OWNED GENERATION PREVIOUS    what a member tells: "HEX"
//   assign ASSIGNOR, then lines "topic NAME COUNT" and "member ID INSTANCE HEX", then "end":
//                                                      "ID=HEX ID=HEX ...", or "failed ERROR"
//
// Lists are "a,b" and "topic:partition,topic:partition"; "-" is none (an empty list is ",").

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.TreeMap;

import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

public class Assignors {
    private static final Node[] NOBODY = new Node[0];

    private static ConsumerPartitionAssignor assignor(String name) {
        for (ConsumerPartitionAssignor each : List.of(
                new RangeAssignor(), new RoundRobinAssignor(), new StickyAssignor(), new CooperativeStickyAssignor())) {
            if (each.name().equals(name)) {
                return each;
            }
        }
        throw new IllegalArgumentException(name);
    }

    private static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static List<String> words(String list) {
        List<String> words = new ArrayList<>();
        for (String word : list.split(",")) {
            if (!word.isEmpty()) {
                words.add(word);
            }
        }
        return words;
    }

    private static List<TopicPartition> partitions(String list) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String word : words(list)) {
            String[] parts = word.split(":");
            partitions.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        return partitions;
    }

    private static String write(String[] command) {
        ConsumerPartitionAssignor assignor = assignor(command[1]);
        List<String> topics = words(command[2]);
        int generation = Integer.parseInt(command[4]);
        if (!command[5].equals("-")) {
            ConsumerGroupMetadata group = new ConsumerGroupMetadata("g", generation, "m", Optional.empty());
            assignor.onAssignment(new Assignment(partitions(command[5])), group);
        }
        ByteBuffer userData = assignor.subscriptionUserData(new HashSet<>(topics));
        return hex(ConsumerProtocol.serializeSubscription(
            new Subscription(topics, userData, partitions(command[3]), generation, Optional.empty())));
    }

    private static String assign(String name, BufferedReader lines) throws Exception {
        List<PartitionInfo> infos = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        for (String[] words = lines.readLine().split(" "); !words[0].equals("end");
                words = lines.readLine().split(" ")) {
            if (words[0].equals("topic")) {
                for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                    infos.add(new PartitionInfo(words[1], i, Node.noNode(), NOBODY, NOBODY));
                }
            } else {
                byte[] metadata = HexFormat.of().parseHex(words[3]);
                Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(metadata));
                subscription.setGroupInstanceId(words[2].equals("-") ? Optional.empty() : Optional.of(words[2]));
                members.put(words[1], subscription);
            }
        }
        Cluster cluster = new Cluster(
            "c", Collections.emptyList(), infos, Collections.emptySet(), Collections.emptySet());
        StringJoiner answer = new StringJoiner(" ");
        try {
            Map<String, Assignment> given =
                assignor(name).assign(cluster, new GroupSubscription(members)).groupAssignment();
            new TreeMap<>(given).forEach((member, assignment) ->
                answer.add(member + "=" + hex(ConsumerProtocol.serializeAssignment(assignment))));
        } catch (RuntimeException error) {
            return "failed " + error;
        }
        return answer.toString();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] command = line.split(" ");
            answers.append(command[0].equals("write") ? write(command) : assign(command[1], lines)).append('\n');
        }
        System.out.print(answers);
    }
}
