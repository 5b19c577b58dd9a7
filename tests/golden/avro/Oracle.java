import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.util.TreeSet;
import org.apache.avro.Schema;
import org.apache.avro.SchemaCompatibility;

/** Reads [[reader, writer], ...] and answers, for each, the kinds of incompatibilities. */
public class Oracle {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    ArrayNode answers = json.createArrayNode();
    for (JsonNode pair : json.readTree(System.in)) {
      ArrayNode kinds = answers.addArray();
      Schema reader = new Schema.Parser().parse(pair.get(0).toString());
      Schema writer = new Schema.Parser().parse(pair.get(1).toString());
      TreeSet<String> found = new TreeSet<>();
      SchemaCompatibility.checkReaderWriterCompatibility(reader, writer)
          .getResult().getIncompatibilities().forEach(each -> found.add(each.getType().name()));
      found.forEach(kinds::add);
    }
    System.out.println(answers);
  }
}
