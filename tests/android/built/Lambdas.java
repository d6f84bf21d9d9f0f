import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.IntBinaryOperator;
import java.util.function.IntFunction;
import java.util.function.IntToLongFunction;
import java.util.function.Supplier;
import java.util.function.ToDoubleFunction;

/** One line for each way in which a lambda can be written. */
public final class Lambdas {
    interface Named {
        String name();

        default Supplier<String> twice() {
            return () -> half() + half();
        }

        default String half() {
            return name() + "/";
        }

        static Named of(String name) {
            return () -> name;
        }
    }

    interface Typed extends Function<String, Integer> {
        Integer apply(String text);
    }

    static class Base {
        String greet(String whom) {
            return "hello " + whom;
        }
    }

    static final class Derived extends Base {
        Function<String, String> own() {
            return this::greet;
        }

        private String secret() {
            return "secret";
        }

        Supplier<String> hidden() {
            return this::secret;
        }

        String direct() {
            return secret();
        }
    }

    private final long state = 7L;

    private long plus(int more) {
        return state + more;
    }

    private static String joined(Object first, long second, double third, char fourth) {
        return first + "," + second + "," + third + "," + fourth;
    }

    interface Wide {
        String of(double third, char fourth);
    }

    public static void main(String[] args) {
        say(((Supplier<String>) () -> "no capture").get());
        long wide = 1L << 40;
        double real = 0.5;
        say(((Supplier<String>) () -> wide + "+" + real).get());
        Wide captured = (third, fourth) -> joined("first", wide, third, fourth);
        say(captured.of(2.5, 'x'));
        Function<Integer, Integer> boxed = n -> n + 1;
        say(boxed.apply(1));
        IntFunction<String> unboxed = Integer::toString;
        say(unboxed.apply(12));
        IntBinaryOperator primitive = Math::max;
        say(primitive.applyAsInt(3, 4));
        Function<Integer, Long> widened = Lambdas::longer;
        say(widened.apply(5));
        IntToLongFunction cast = n -> n * 10;
        say(cast.applyAsLong(6));
        ToDoubleFunction<Integer> real2 = Integer::doubleValue;
        say(real2.applyAsDouble(3));
        Supplier<List<String>> made = ArrayList::new;
        say(made.get());
        Function<String, StringBuilder> built = StringBuilder::new;
        say(built.apply("built").reverse());
        IntFunction<int[]> array = int[]::new;
        say(array.apply(3).length);
        BiFunction<String, String, Boolean> virtual = String::startsWith;
        say(virtual.apply("ab", "a"));
        Function<Named, String> byInterface = Named::name;
        say(byInterface.apply(Named.of("static of an interface")));
        say(Named.of("default").twice().get());
        say(new Derived().own().apply("you"));
        say(new Derived().hidden().get() + new Derived().direct());
        Lambdas self = new Lambdas();
        IntToLongFunction bound = self::plus;
        say(bound.applyAsLong(3));
        Runnable dropped = new ArrayList<>(Arrays.asList(1, 2))::clear;
        dropped.run();
        Runnable droppedWide = self::wideResult;
        droppedWide.run();
        say("dropped");
        Typed bridged = String::length;
        Function<String, Integer> viaBridge = bridged;
        say(viaBridge.apply("four"));
        Object marked = (Runnable & Serializable) () -> say("marked");
        ((Runnable) marked).run();
        say(marked instanceof Serializable);
        List<String> sorted = new ArrayList<>(Arrays.asList("b", "c", "a"));
        sorted.sort(Comparator.<String>naturalOrder().reversed());
        say(sorted);
        Function<Integer, Function<Integer, Integer>> nested = a -> b -> a * b;
        say(nested.apply(6).apply(7));
    }

    private static long longer(int number) {
        return number;
    }

    private long wideResult() {
        return state;
    }

    private static void say(Object what) {
        System.out.println(what);
    }
}
