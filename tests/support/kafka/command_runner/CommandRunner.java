import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs commands of Kafka one after the other: to start a JVM and load their classes for each of
 * them takes a second of a processor.
 *
 * <p>A request is a line of words in Base64: the standard input of the command, its class, and its
 * arguments. The response is a line with the exit code, and what it printed in Base64.
 */
public class CommandRunner {
  /** What a command throws where it would end the process. */
  private static class Ended extends Error {}

  /** What all commands print: one stream, because Scala's console keeps its first. */
  private static final ByteArrayOutputStream printed = new ByteArrayOutputStream();

  private static final List<Runnable> hooks = new ArrayList<>();

  /** The response to the command that runs, once it has ended itself. */
  private static String response;

  public static void main(String[] none) throws Exception {
    Exit.setExitProcedure(CommandRunner::end);
    Exit.setHaltProcedure(CommandRunner::end);
    Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
    PrintStream responses = System.out;
    PrintStream output = new PrintStream(printed, true);
    System.setOut(output);
    System.setErr(output);
    String line;
    while ((line = requests.readLine()) != null) {
      List<byte[]> words = new ArrayList<>();
      for (String word : line.split(" ", -1)) {
        words.add(Base64.getDecoder().decode(word));
      }
      System.setIn(new ByteArrayInputStream(words.get(0)));
      String[] arguments = words.stream().skip(2).map(String::new).toArray(String[]::new);
      responses.println(run(new String(words.get(1)), arguments));
    }
  }

  private static String run(String command, String[] arguments) throws Exception {
    response = null;
    printed.reset();
    try {
      Class.forName(command).getMethod("main", String[].class).invoke(null, (Object) arguments);
      respond(0);
    } catch (InvocationTargetException thrown) {
      thrown.getCause().printStackTrace();
      respond(1);
    }
    return response;
  }

  private static void end(int code, String message) {
    respond(code);
    throw new Ended();
  }

  /** Nothing counts after the first end: some commands catch what ends them, and print it. */
  private static void respond(int code) {
    if (response == null) {
      hooks.forEach(Runnable::run);
      hooks.clear();
      response = code + " " + Base64.getEncoder().encodeToString(printed.toByteArray());
    }
  }
}
